import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * What a Java programmer would write to copy ledgers: the yardstick of bench/ledger_copy.py. Reads commands on standard
 * input: `fill FIRST COUNT ENTRIES BYTES` (in the source), `bare FIRST COUNT`, `verified FIRST COUNT`; answers each with
 * the seconds it took, or with why one of the ledgers failed, once all have ended.
 */
public class PlainLedgerCopy {
    static final int WINDOW = 256;
    static BookKeeper source;
    static BookKeeper target;

    public static void main(String[] arguments) throws Exception {
        source = client(arguments[0]);
        target = client(arguments[1]);
        ExecutorService pool = Executors.newFixedThreadPool(16);
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            long first = Long.parseLong(words[1]);
            long started = System.nanoTime();
            List<Future<?>> work = new ArrayList<>();
            for (long id = first; id < first + Long.parseLong(words[2]); id++) {
                final long ledger = id;
                work.add(pool.submit(() -> {
                    if (words[0].equals("fill")) {
                        fill(ledger, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
                    } else {
                        copy(ledger, words[0].equals("verified"));
                    }
                    return null;
                }));
            }
            Exception failure = null;
            for (Future<?> each : work) {
                try {
                    each.get();
                } catch (Exception error) {
                    failure = error;
                }
            }
            System.out.println(failure == null ? (System.nanoTime() - started) / 1e9 + "" : failure.toString());
            System.out.flush();
        }
        System.exit(0);
    }

    static BookKeeper client(String uri) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(uri);
        configuration.setNumIOThreads(2);
        configuration.setNumWorkerThreads(2);
        return new BookKeeper(configuration);
    }

    static void fill(long id, int entries, int bytes) throws Exception {
        WriteAdvHandle handle = create(source, id, 1, Collections.emptyMap());
        byte[] payload = new byte[bytes];
        new Random(id).nextBytes(payload);
        List<CompletableFuture<Long>> written = new ArrayList<>();
        for (int i = 0; i < entries; i++) {
            written.add(handle.writeAsync(i, payload));
        }
        CompletableFuture.allOf(written.toArray(new CompletableFuture[0])).get();
        handle.close();
    }

    static void copy(long id, boolean verified) throws Exception {
        MessageDigest read = verified ? MessageDigest.getInstance("SHA-256") : null;
        ReadHandle from = open(source, id);
        LedgerMetadata metadata = from.getLedgerMetadata();
        Map<String, byte[]> custom = new HashMap<>(metadata.getCustomMetadata());
        custom.put("copied.by", "plain".getBytes());
        WriteAdvHandle to = create(target, id, metadata.getEnsembleSize(), custom);
        pour(from, to, read);
        to.close();
        from.close();
        if (verified) {
            MessageDigest back = MessageDigest.getInstance("SHA-256");
            ReadHandle copied = open(target, id);
            pour(copied, null, back);
            copied.close();
            if (!Arrays.equals(read.digest(), back.digest())) {
                throw new IllegalStateException("ledger " + id + " differs");
            }
        }
    }

    static void pour(ReadHandle from, WriteAdvHandle to, MessageDigest digest) throws Exception {
        long last = from.getLastAddConfirmed();
        for (long first = 0; first <= last; first += WINDOW) {
            List<CompletableFuture<Long>> written = new ArrayList<>();
            try (LedgerEntries entries = from.read(first, Math.min(last, first + WINDOW - 1))) {
                for (LedgerEntry entry : entries) {
                    byte[] payload = entry.getEntryBytes();
                    if (digest != null) {
                        digest.update(payload);
                    }
                    if (to != null) {
                        written.add(to.writeAsync(entry.getEntryId(), payload));
                    }
                }
            }
            CompletableFuture.allOf(written.toArray(new CompletableFuture[0])).get();
        }
    }

    static ReadHandle open(BookKeeper client, long id) throws Exception {
        return client.newOpenLedgerOp().withLedgerId(id).withRecovery(false).withDigestType(DigestType.CRC32C)
            .withPassword(new byte[0]).execute().get();
    }

    static WriteAdvHandle create(BookKeeper client, long id, int ensemble, Map<String, byte[]> custom) throws Exception {
        return client.newCreateLedgerOp().withEnsembleSize(ensemble).withWriteQuorumSize(ensemble)
            .withAckQuorumSize(ensemble).withDigestType(DigestType.CRC32C).withPassword(new byte[0])
            .withCustomMetadata(custom).makeAdv().withLedgerId(id).execute().get();
    }
}
