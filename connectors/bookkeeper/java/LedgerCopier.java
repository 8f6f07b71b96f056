package headgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerMetadataUtils;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.meta.LedgerIdGenerator;
import org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory;
import org.apache.bookkeeper.meta.zk.ZKMetadataDriverBase;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks;
import org.apache.bookkeeper.util.StringUtils;
import org.apache.bookkeeper.versioning.Versioned;
import org.apache.zookeeper.AsyncCallback;
import org.apache.zookeeper.data.Stat;

/**
 * The inner loop of a ledger copy from one BookKeeper cluster to another, entry by entry. Python sets the id of each
 * copy, and requests a new id from here if it needs one.
 *
 * Python decides and keeps the journal (connectors/bookkeeper/copier.py); this class only does the work that would be too
 * slow between processes. Requests and answers are JSON, so that Python never holds an object of this JVM.
 *
 * Janino, which ships with PySpark, compiles this class at the start, so no JDK is needed. Therefore there are no lambdas
 * here, and results of generic methods are cast.
 */
public final class LedgerCopier {
    /** A failure as Python receives it: its phase, and BookKeeper's code; 0 if there is none. */
    private static final class Failure extends Exception {
        private static final long serialVersionUID = 1L;
        final String phase;
        final int code;

        Failure(String phase, Throwable cause) {
            super(cause.getClass().getSimpleName() + ": " + cause.getMessage(), cause);
            this.phase = phase;
            this.code = cause instanceof BKException ? ((BKException) cause).getCode()
                : cause instanceof TimeoutException ? BKException.Code.TimeoutException : 0;
        }
    }

    /** One cluster and its client. */
    private static final class Cluster {
        final String side;
        private final JsonNode settings;
        private BookKeeper client;
        private String root;
        private boolean closed;

        Cluster(String side, JsonNode settings) {
            this.side = side;
            this.settings = settings.get(side);
        }

        synchronized BookKeeper client() throws Failure {
            if (closed) {
                throw new Failure(side + "-connect", new IllegalStateException("the copier is closed"));
            }
            if (client == null) {
                try {
                    ClientConfiguration configuration = configuration();
                    root = ZKMetadataDriverBase.resolveZkLedgersRootPath(configuration);
                    client = new BookKeeper(configuration);
                } catch (Exception error) {
                    throw new Failure(side + "-connect", error);
                }
            }
            return client;
        }

        /** Make the client before it is needed; its first user gets the error if that fails. */
        void connect(Executor threads) {
            threads.execute(new Runnable() {
                public void run() {
                    try {
                        client();
                    } catch (Failure failure) {
                        // The first use makes it again.
                    }
                }
            });
        }

        /** The znode of a ledger's metadata. */
        String pathOf(long id) throws Failure {
            boolean isLong = client().getLedgerManagerFactory() instanceof LongHierarchicalLedgerManagerFactory;
            return root + (isLong ? StringUtils.getLongHierarchicalLedgerPath(id)
                : StringUtils.getHybridHierarchicalLedgerPath(id));
        }

        private ClientConfiguration configuration() {
            ClientConfiguration configuration = new ClientConfiguration();
            Iterator names = settings.get("properties").fieldNames();
            while (names.hasNext()) {
                String name = (String) names.next();
                configuration.setProperty(name, settings.get("properties").get(name).asText());
            }
            return configuration;
        }

        byte[] password() {
            return decode(settings.get("password").asText());
        }

        synchronized void close() throws Exception {
            closed = true;
            if (client != null) {
                client.close();
                client = null;
            }
        }
    }

    /** Pulsar's digest type, for ledgers without one in their metadata; the client reads that one by itself. */
    private static final DigestType DIGEST_TYPE = DigestType.CRC32C;
    private static final int BUSY_TRIES = 6;
    private static final long FIRST_PAUSE_MILLIS = 50;
    /** Limit of a ledger's entries in one read. */
    private static final int WINDOW_ENTRIES = 64;
    /** Limit of the bytes of all reads in flight, because bookies have other readers, too. */
    private static final int BYTES_IN_FLIGHT = 16 * 1024 * 1024;
    /** The least size that an entry counts for; bookies limit requests, too (`maxPendingReadRequestsPerThread`). */
    private static final long ENTRY_BYTES = 16 * 1024;
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Cluster source;
    private final Cluster target;
    private final String provenanceName;
    private final long timeoutMillis;
    private final long windowBytes;
    private final Semaphore reads = new Semaphore(BYTES_IN_FLIGHT, true);
    private final ExecutorService workers;
    private final Map jobs = new ConcurrentHashMap();
    private volatile long bytesPerSecond;
    private long freeNanos;

    public LedgerCopier(String text) throws Exception {
        JsonNode settings = JSON.readTree(text);
        source = new Cluster("source", settings);
        target = new Cluster("target", settings);
        provenanceName = settings.get("provenance_name").asText();
        timeoutMillis = settings.get("timeout_ms").asLong();
        windowBytes = settings.get("window_bytes").asLong();
        workers = Executors.newFixedThreadPool(settings.get("concurrency").asInt());
        bytesPerSecond = settings.get("bytes_per_second").asLong();
        source.connect(workers);
        target.connect(workers);
    }

    /** Limit the bytes that all copies together write in a second from now on; 0 is no limit. */
    public void limit(long bytes) {
        bytesPerSecond = bytes;
    }

    /** Wait until these bytes may be written. A copy that waits already uses the previous limit. */
    private void pace(long bytes) throws InterruptedException {
        long limit = bytesPerSecond;
        if (limit <= 0) {
            return;
        }
        long nanos;
        synchronized (jobs) {
            long now = System.nanoTime();
            nanos = Math.max(0, freeNanos - now);
            freeNanos = now + nanos + (long) (bytes * 1e9 / limit);
        }
        TimeUnit.NANOSECONDS.sleep(nanos);
    }

    /** Begin a request, unless it has begun, and wait for its answer; null if it has not ended by then. */
    public String run(String name, String text, long millis) throws Exception {
        Future job = (Future) jobs.get(name);
        if (job == null) {
            final JsonNode request = JSON.readTree(text);
            job = workers.submit(new Callable() {
                public Object call() {
                    return work(request).toString();
                }
            });
            jobs.put(name, job);
        }
        try {
            String answer = (String) job.get(millis, TimeUnit.MILLISECONDS);
            jobs.remove(name);
            return answer;
        } catch (TimeoutException late) {
            return null;
        } catch (CancellationException closed) {
            jobs.remove(name);
            return JSON.createObjectNode().put("status", "cancelled").toString();
        }
    }

    /** End all requests and both clients. */
    public void close() throws Exception {
        workers.shutdown();
        for (Iterator each = jobs.values().iterator(); each.hasNext();) {
            ((Future) each.next()).cancel(true);
        }
        source.close();
        target.close();
    }

    private ObjectNode work(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.put("status", done(request, answer));
        } catch (Failure failure) {
            answer.put("status", "failed").put("phase", failure.phase).put("code", failure.code);
            answer.put("detail", failure.getMessage());
        } catch (InterruptedException interrupted) {
            answer.put("status", "cancelled");
        } catch (Throwable error) {
            answer.put("status", "failed").put("phase", "copier").put("detail", error.toString());
        }
        return answer;
    }

    private String done(JsonNode request, ObjectNode answer) throws Exception {
        String kind = request.get("kind").asText();
        if (kind.equals("copy")) {
            return copy(request, answer);
        }
        if (kind.equals("new_id")) {
            answer.put("new_id", newId());
            return "new_id";
        }
        return kind.equals("look") ? look(request) : delete(request, answer);
    }

    /** The id of the copy, which may differ from the source's. */
    private static long targetIdOf(JsonNode request) {
        return request.get("target_id").asLong();
    }

    // --- copying

    /**
     * Draw a new id from the target, as its clients do. Each call uses a new generator, because a generator remembers its
     * counter even if another client has advanced it.
     */
    private long newId() throws Exception {
        final CompletableFuture given = new CompletableFuture();
        LedgerIdGenerator generator = target.client().getLedgerManagerFactory().newLedgerIdGenerator();
        try {
            generator.generateLedgerId(new BookkeeperInternalCallbacks.GenericCallback() {
                public void operationComplete(int code, Object id) {
                    if (code == BKException.Code.OK) {
                        given.complete(id);
                    } else {
                        given.completeExceptionally(BKException.create(code));
                    }
                }
            });
            return ((Long) get(given, "target-create")).longValue();
        } finally {
            generator.close();
        }
    }

    /** Whether our copy exists in the target. */
    private String look(JsonNode request) throws Exception {
        try {
            return isOwn(request, metadata(target, targetIdOf(request), "target-inspect")) ? "own" : "foreign";
        } catch (Failure failure) {
            if (isMissing(failure.code)) {
                return "missing";
            }
            throw failure;
        }
    }

    private String copy(JsonNode request, ObjectNode answer) throws Exception {
        long id = request.get("ledger_id").asLong();
        long targetId = targetIdOf(request);
        byte[] provenance = request.get("provenance").asText().getBytes(StandardCharsets.UTF_8);
        ReadHandle from = openSource(id, answer);
        if (from == null) {
            return "source_open";
        }
        Pouring pouring = new Pouring(from, "source-read");
        try {
            pouring.begin();  // it is read while the target makes the ledger
            WriteAdvHandle to = create(request, from.getLedgerMetadata(), provenance);
            if (to == null) {
                pouring.abandon();
                return existing(from, targetId, provenance, answer);
            }
            String digest = pouring.into(to);
            get(to.closeAsync(), "target-close");
            ((ObjectNode) answer.get("source")).put("entries_digest", digest);
        } finally {
            pouring.abandon();
            from.closeAsync();
        }
        ReadHandle back = open(target, targetId, "target-verify");
        try {
            ObjectNode copied = facts(target, back.getLedgerMetadata());
            answer.set("target", copied.put("entries_digest", digestOf(back, "target-verify")));
        } finally {
            back.closeAsync();
        }
        return "copied";
    }

    /** The source's ledger and its facts; null if it is not closed, even if its last entries cannot be read. */
    private ReadHandle openSource(long id, ObjectNode answer) throws Exception {
        LedgerMetadata metadata = metadata(source, id, "source-metadata");
        answer.set("source", facts(source, metadata));
        return metadata.getState() == LedgerMetadata.State.CLOSED ? open(source, id, "source-read") : null;
    }

    /** Create a ledger with the given id; null if it exists already. */
    private WriteAdvHandle create(JsonNode request, LedgerMetadata metadata, byte[] provenance) throws Exception {
        Map custom = new HashMap(metadata.getCustomMetadata());
        custom.put(provenanceName, provenance);
        CompletableFuture created = target.client().newCreateLedgerOp()
            .withEnsembleSize(sizeOf(request, "ensemble_size", metadata.getEnsembleSize()))
            .withWriteQuorumSize(sizeOf(request, "write_quorum", metadata.getWriteQuorumSize()))
            .withAckQuorumSize(sizeOf(request, "ack_quorum", metadata.getAckQuorumSize()))
            .withDigestType(metadata.hasPassword() ? metadata.getDigestType() : DIGEST_TYPE)
            .withPassword(target.password())
            .withCustomMetadata(custom)
            .makeAdv()
            .withLedgerId(targetIdOf(request))
            .execute();
        try {
            return (WriteAdvHandle) get(created, "target-create");
        } catch (Failure failure) {
            if (failure.code == BKException.Code.LedgerExistException
                    || failure.code == BKException.Code.MetadataVersionException) {
                return null;
            }
            throw failure;
        }
    }

    private static int sizeOf(JsonNode request, String name, int otherwise) {
        return request.hasNonNull(name) ? request.get(name).asInt() : otherwise;
    }

    /** The existing ledger with the id. Only our own is read; a foreign one may have a writer and another password. */
    private String existing(ReadHandle from, long id, byte[] provenance, ObjectNode answer) throws Exception {
        LedgerMetadata wanted = from.getLedgerMetadata();
        LedgerMetadata there = metadata(target, id, "target-inspect");
        ObjectNode facts = facts(target, there);
        answer.set("target", facts);
        if (!Arrays.equals(provenance, (byte[]) there.getCustomMetadata().get(provenanceName))) {
            return "foreign";
        }
        if (there.getState() != LedgerMetadata.State.CLOSED || there.getLength() != wanted.getLength()
                || there.getLastEntryId() != wanted.getLastEntryId()) {
            return "own_partial";
        }
        ReadHandle handle = open(target, id, "target-inspect");
        try {
            facts.put("entries_digest", digestOf(handle, "target-inspect"));
        } finally {
            handle.closeAsync();
        }
        ((ObjectNode) answer.get("source")).put("entries_digest", digestOf(from, "source-read"));
        return "own_closed";
    }

    /** Read all entries in order, only for their digest. */
    private String digestOf(ReadHandle handle, String phase) throws Exception {
        Pouring pouring = new Pouring(handle, phase);
        try {
            pouring.begin();
            return pouring.into(null);
        } finally {
            pouring.abandon();
        }
    }

    /** Reads all entries of a ledger in order; one window is read while the previous one is written. */
    private final class Pouring {
        private final ReadHandle from;
        private final String phase;
        private final long last;
        private final MessageDigest digest;
        private final ByteBuffer header = ByteBuffer.allocate(16);
        private long largest;
        private CompletableFuture reading;
        private long first;
        private long end;
        private int cost;

        Pouring(ReadHandle from, String phase) throws Exception {
            this.from = from;
            this.phase = phase;
            last = from.getLastAddConfirmed();
            largest = last < 0 ? 1 : Math.max(1, from.getLength() / (last + 1));
            digest = MessageDigest.getInstance("SHA-256");
        }

        void begin() throws InterruptedException {
            read(0);
        }

        /** Begin to read some entries. All reads together are limited, to protect the bookies. */
        private void read(long begin) throws InterruptedException {
            if (begin <= last) {
                first = begin;
                end = Math.min(last, first + Math.max(1, Math.min(WINDOW_ENTRIES, windowBytes / largest)) - 1);
                cost = (int) Math.min(BYTES_IN_FLIGHT, (end - first + 1) * Math.max(ENTRY_BYTES, largest));
                reads.acquire(cost);
                reading = from.readAsync(first, end);
            }
        }

        /** Wait for the entries; a bookie with too many requests gets some time. */
        private LedgerEntries entries() throws Failure, InterruptedException {
            try {
                for (int attempt = 0;; attempt++) {
                    try {
                        return (LedgerEntries) get(reading, phase);
                    } catch (Failure failure) {
                        if (failure.code != BKException.Code.TooManyRequestsException || attempt == BUSY_TRIES) {
                            throw failure;
                        }
                        Thread.sleep(FIRST_PAUSE_MILLIS << attempt);
                        reading = from.readAsync(first, end);
                    }
                }
            } finally {
                if (reading.isDone()) {
                    reads.release(cost);
                    reading = null;
                } else {
                    abandon();
                }
            }
        }

        /**
         * Write the entries if there is a writer, and return the digest: SHA-256 over each entry's id and length (eight
         * bytes each, big endian) and its payload.
         */
        String into(WriteAdvHandle to) throws Exception {
            CompletableFuture writing = null;
            while (reading != null) {
                LedgerEntries entries = entries();
                try {
                    if (writing != null) {  // the last window must be written before the next but one is read
                        get(writing, "target-write");
                    }
                    long bytes = sizeOf(entries);  // also sets the size of the next window
                    if (to != null) {
                        pace(bytes);
                    }
                    read(end + 1);
                    writing = forward(entries, to);
                } finally {
                    entries.close();
                }
            }
            if (writing != null) {
                get(writing, "target-write");
            }
            return "sha256:" + hex(digest.digest());
        }

        private long sizeOf(LedgerEntries window) {
            long bytes = 0;
            for (Iterator entries = window.iterator(); entries.hasNext();) {
                int size = ((LedgerEntry) entries.next()).getEntryBuffer().readableBytes();
                largest = Math.max(largest, size);
                bytes += size;
            }
            return bytes;
        }

        private CompletableFuture forward(LedgerEntries window, WriteAdvHandle to) {
            List written = new ArrayList();
            for (Iterator entries = window.iterator(); entries.hasNext();) {
                LedgerEntry entry = (LedgerEntry) entries.next();
                ByteBuf payload = entry.getEntryBuffer();
                header.clear();
                digest.update(header.putLong(entry.getEntryId()).putLong(payload.readableBytes()).array());
                digest.update(payload.nioBuffer());
                if (to != null) {
                    written.add(to.writeAsync(entry.getEntryId(), (ByteBuf) payload.retain()));  // which releases it
                }
            }
            return CompletableFuture.allOf((CompletableFuture[]) written.toArray(new CompletableFuture[0]));
        }

        /** Release the read in flight, and the buffers of its entries; harmless if there is none. */
        void abandon() {
            if (reading != null) {
                reads.release(cost);
                reading.thenAccept(new Consumer() {
                    public void accept(Object entries) {
                        ((LedgerEntries) entries).close();
                    }
                });
                reading = null;
            }
        }
    }

    // --- deleting

    /** Delete a ledger's metadata if they are unchanged, by their version; bookies then delete the entries. */
    private String delete(JsonNode request, ObjectNode answer) throws Exception {
        boolean own = request.get("kind").asText().equals("delete_own");
        Cluster cluster = own ? target : source;
        String phase = cluster.side + "-delete";
        long id = own ? targetIdOf(request) : request.get("ledger_id").asLong();
        try {
            Versioned found = (Versioned) get(cluster.client().getLedgerManager().readLedgerMetadata(id), phase);
            LedgerMetadata metadata = (LedgerMetadata) found.getValue();
            ObjectNode facts = facts(cluster, metadata);
            answer.set(cluster.side, facts);
            if (own ? !isOwn(request, metadata) : !isOld(request, facts)) {
                return "refused";
            }
            get(cluster.client().getLedgerManager().removeLedgerMetadata(id, found.getVersion()), phase);
            return "deleted";
        } catch (Failure failure) {
            if (isMissing(failure.code)) {
                return "missing";
            }
            throw failure;
        }
    }

    private boolean isOwn(JsonNode request, LedgerMetadata metadata) {
        byte[] provenance = request.get("provenance").asText().getBytes(StandardCharsets.UTF_8);
        return Arrays.equals(provenance, (byte[]) metadata.getCustomMetadata().get(provenanceName));
    }

    private static boolean isOld(JsonNode request, ObjectNode facts) {
        return facts.get("state").asText().equals("closed")
            && facts.get("created_ms").asLong() == request.get("created_ms").asLong()
            && facts.get("length_bytes").asLong() == request.get("length_bytes").asLong()
            && facts.get("last_entry_id").asLong() == request.get("last_entry_id").asLong();
    }

    private static boolean isMissing(int code) {
        return code == BKException.Code.NoSuchLedgerExistsException
            || code == BKException.Code.NoSuchLedgerExistsOnMetadataServerException;
    }

    // --- looking

    private LedgerMetadata metadata(Cluster cluster, long id, String phase) throws Exception {
        return (LedgerMetadata) get(cluster.client().getLedgerMetadata(id), phase);
    }

    /**
     * Open a closed ledger. Only of a ledger that is not closed would the recovery fence the writer, and a closed one
     * stays closed. Without it the client would watch the metadata of every ledger that it ever opened.
     */
    private ReadHandle open(Cluster cluster, long id, String phase) throws Exception {
        CompletableFuture opened = cluster.client().newOpenLedgerOp()
            .withLedgerId(id)
            .withRecovery(true)
            .withDigestType(DIGEST_TYPE)
            .withPassword(cluster.password())
            .execute();
        return (ReadHandle) get(opened, phase);
    }

    private ObjectNode facts(Cluster cluster, LedgerMetadata metadata) throws Exception {
        ObjectNode facts = JSON.createObjectNode();
        facts.put("ledger_id", metadata.getLedgerId()).put("state", metadata.getState().name().toLowerCase());
        facts.put("last_entry_id", metadata.getLastEntryId()).put("length_bytes", metadata.getLength());
        facts.put("ensemble_size", metadata.getEnsembleSize()).put("write_quorum", metadata.getWriteQuorumSize());
        facts.put("ack_quorum", metadata.getAckQuorumSize());
        facts.put("created_ms", created(cluster, metadata));
        ObjectNode custom = facts.putObject("custom_metadata");
        for (Iterator each = metadata.getCustomMetadata().entrySet().iterator(); each.hasNext();) {
            Map.Entry property = (Map.Entry) each.next();
            custom.put((String) property.getKey(), Base64.getEncoder().encodeToString((byte[]) property.getValue()));
        }
        return facts;
    }

    /** When ZooKeeper created the ledger's node, by its own clock; null if it is gone. */
    private Long created(Cluster cluster, LedgerMetadata metadata) throws Exception {
        // Read with the metadata, unless they have a time of their own, or a version that the client reads without it.
        if (metadata.getCtime() >= 0 && !LedgerMetadataUtils.shouldStoreCtime(metadata)) {
            return Long.valueOf(metadata.getCtime());
        }
        final CompletableFuture asked = new CompletableFuture();
        String path = cluster.pathOf(metadata.getLedgerId());
        ((ZKMetadataDriverBase) cluster.client().getMetadataClientDriver()).getZk().exists(path, false,
            new AsyncCallback.StatCallback() {
                public void processResult(int code, String at, Object context, Stat stat) {
                    asked.complete(stat == null ? null : Long.valueOf(stat.getCtime()));
                }
            }, null);
        return (Long) get(asked, cluster.side + "-metadata");
    }

    private Object get(Future future, String phase) throws Failure, InterruptedException {
        try {
            return future.get(timeoutMillis, TimeUnit.MILLISECONDS);
        } catch (ExecutionException error) {
            throw new Failure(phase, error.getCause());
        } catch (TimeoutException late) {
            throw new Failure(phase, late);
        }
    }

    private static byte[] decode(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < bytes.length; i++) {
            text.append(Character.forDigit((bytes[i] >> 4) & 15, 16)).append(Character.forDigit(bytes[i] & 15, 16));
        }
        return text.toString();
    }
}
