package headgate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Consumer;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerMetadataUtils;
import org.apache.bookkeeper.client.api.*;
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
    private static final class Cluster implements Runnable {
        final String side;
        final byte[] password;
        private final JsonNode properties;
        private BookKeeper client;
        String root;

        Cluster(String side, JsonNode settings) throws Exception {
            this.side = side;
            password = settings.get("password").binaryValue();
            properties = settings.get("properties");
        }

        synchronized BookKeeper client() throws Failure {
            try {
                if (client == null) {
                    ClientConfiguration configuration = new ClientConfiguration();
                    for (Iterator each = properties.fields(); each.hasNext();) {
                        Map.Entry property = (Map.Entry) each.next();
                        configuration.setProperty((String) property.getKey(), ((JsonNode) property.getValue()).asText());
                    }
                    root = ZKMetadataDriverBase.resolveZkLedgersRootPath(configuration);
                    client = new BookKeeper(configuration);
                }
                return client;
            } catch (Exception error) {
                throw new Failure(side + "-connect", error);
            }
        }

        /** Make the client before it is needed; its first user gets the error if that fails. */
        public void run() {
            try {
                client();
            } catch (Failure failure) {
                // The first use makes it again.
            }
        }
    }

    /** One request, and its answer as far as it is known. */
    private final class Job implements Callable {
        final JsonNode request;
        final String kind;
        final long ledgerId;
        /** The id of the copy, which may differ from the source's. */
        final long targetId;
        final byte[] provenance;
        final ObjectNode answer = JSON.createObjectNode();

        Job(JsonNode request) {
            this.request = request;
            kind = request.get("kind").asText();
            ledgerId = request.get("ledger_id").asLong();
            targetId = request.has("target_id") ? request.get("target_id").asLong() : ledgerId;
            String text = request.has("provenance") ? request.get("provenance").asText() : "";
            provenance = text.getBytes(StandardCharsets.UTF_8);
        }

        public Object call() {
            try {
                answer.put("status", carryOut(this));
            } catch (Failure failure) {
                boolean isMissing = failure.code == BKException.Code.NoSuchLedgerExistsException
                    || failure.code == BKException.Code.NoSuchLedgerExistsOnMetadataServerException;
                answer.put("status", isMissing && !kind.equals("copy") ? "missing" : "failed");
                answer.put("phase", failure.phase).put("code", failure.code).put("detail", failure.getMessage());
            } catch (Throwable error) {
                answer.put("status", "failed").put("phase", "copier").put("detail", error.toString());
            }
            return answer.toString();
        }

        /** Whether a ledger of the target is this job's copy. */
        boolean owns(LedgerMetadata metadata) {
            return Arrays.equals(provenance, (byte[]) metadata.getCustomMetadata().get(provenanceName));
        }
    }

    /** Pulsar's digest type, for ledgers without one in their metadata; the client reads that one by itself. */
    private static final DigestType DIGEST_TYPE = DigestType.CRC32C;
    /** Limit of a ledger's entries in one read: bookies limit requests (`maxPendingReadRequestsPerThread`). */
    private static final int WINDOW_ENTRIES = 64;
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Cluster source;
    private final Cluster target;
    private final String provenanceName;
    private final long timeoutMillis;
    private final long windowBytes;
    private final ExecutorService workers;
    private final Map jobs = new ConcurrentHashMap();
    private volatile long bytesPerSecond;
    private long freeNanos;

    public LedgerCopier(String text) throws Exception {
        JsonNode settings = JSON.readTree(text);
        source = new Cluster("source", settings.get("source"));
        target = new Cluster("target", settings.get("target"));
        provenanceName = settings.get("provenance_name").asText();
        timeoutMillis = settings.get("timeout_ms").asLong();
        windowBytes = settings.get("window_bytes").asLong();
        workers = Executors.newFixedThreadPool(settings.get("concurrency").asInt());
        bytesPerSecond = settings.get("bytes_per_second").asLong();
        workers.execute(source);
        workers.execute(target);
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
            job = workers.submit(new Job(JSON.readTree(text)));
            jobs.put(name, job);
        }
        try {
            String answer = (String) job.get(millis, TimeUnit.MILLISECONDS);
            jobs.remove(name);
            return answer;
        } catch (TimeoutException late) {
            return null;
        }
    }

    private String carryOut(Job job) throws Exception {
        if (job.kind.equals("copy")) {
            return copy(job);
        }
        if (job.kind.equals("new_id")) {
            job.answer.put("new_id", newId());
            return "new_id";
        }
        if (job.kind.equals("look")) {
            return job.owns(metadata(target, job.targetId, "target-inspect")) ? "own" : "foreign";
        }
        return delete(job, job.kind.equals("delete_own"));
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

    private String copy(Job job) throws Exception {
        LedgerMetadata metadata = metadata(source, job.ledgerId, "source-metadata");
        ObjectNode facts = facts(source, metadata);
        job.answer.set("source", facts);
        if (metadata.getState() != LedgerMetadata.State.CLOSED) {  // also if its last entries cannot be read
            return "source_open";
        }
        ReadHandle from = open(source, job.ledgerId, "source-read");
        Pouring pouring = new Pouring(from, "source-read");  // it is read while the target makes the ledger
        try {
            WriteAdvHandle to = create(job, metadata);
            String status = to == null ? existing(job, metadata) : "copied";
            if (status.equals("copied") || status.equals("own_closed")) {
                facts.put("entries_digest", pouring.into(to));
                if (to != null) {
                    get(to.closeAsync(), "target-close");
                }
                readBack(job, to == null ? "target-inspect" : "target-verify");
            }
            return status;
        } finally {
            pouring.abandon();
            from.closeAsync();
        }
    }

    /** Create a ledger with the given id; null if it exists already. */
    private WriteAdvHandle create(Job job, LedgerMetadata metadata) throws Exception {
        Map custom = new HashMap(metadata.getCustomMetadata());
        custom.put(provenanceName, job.provenance);
        CompletableFuture created = target.client().newCreateLedgerOp()
            .withEnsembleSize(sizeOf(job.request, "ensemble_size", metadata.getEnsembleSize()))
            .withWriteQuorumSize(sizeOf(job.request, "write_quorum", metadata.getWriteQuorumSize()))
            .withAckQuorumSize(sizeOf(job.request, "ack_quorum", metadata.getAckQuorumSize()))
            .withDigestType(metadata.hasPassword() ? metadata.getDigestType() : DIGEST_TYPE)
            .withPassword(target.password)
            .withCustomMetadata(custom)
            .makeAdv()
            .withLedgerId(job.targetId)
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
        return request.has(name) ? request.get(name).asInt() : otherwise;
    }

    /** Whose the existing ledger is. A foreign one is not read: it may have a writer and another password. */
    private String existing(Job job, LedgerMetadata wanted) throws Exception {
        LedgerMetadata there = metadata(target, job.targetId, "target-inspect");
        job.answer.set("target", facts(target, there));
        if (!job.owns(there)) {
            return "foreign";
        }
        return there.getState() == LedgerMetadata.State.CLOSED && there.getLength() == wanted.getLength()
            && there.getLastEntryId() == wanted.getLastEntryId() ? "own_closed" : "own_partial";
    }

    /** Add the facts of our closed copy, with the digest of its entries as they are there. */
    private void readBack(Job job, String phase) throws Exception {
        ReadHandle back = open(target, job.targetId, phase);
        Pouring pouring = new Pouring(back, phase);
        try {
            ObjectNode facts = facts(target, back.getLedgerMetadata());
            job.answer.set("target", facts.put("entries_digest", pouring.into(null)));
        } finally {
            pouring.abandon();
            back.closeAsync();
        }
    }

    /** Reads all entries of a ledger in order; one window is read while the previous one is written. */
    private final class Pouring {
        private final ReadHandle from;
        private final String phase;
        private final long last;
        private final ByteBuffer header = ByteBuffer.allocate(16);
        private long largest;
        private long next;
        private CompletableFuture reading;

        Pouring(ReadHandle from, String phase) {
            this.from = from;
            this.phase = phase;
            last = from.getLastAddConfirmed();
            largest = last < 0 ? 1 : Math.max(1, from.getLength() / (last + 1));
            read();
        }

        /** Begin to read the next entries, as many as the largest one so far makes fit a window. */
        private void read() {
            if (next <= last) {
                long end = Math.min(last, next + Math.max(1, Math.min(WINDOW_ENTRIES, windowBytes / largest)) - 1);
                reading = from.readAsync(next, end);
                next = end + 1;
            }
        }

        /**
         * Write the entries if there is a writer, and return the digest: SHA-256 over each entry's id and length (eight
         * bytes each, big endian) and its payload.
         */
        String into(WriteAdvHandle to) throws Exception {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            CompletableFuture writing = CompletableFuture.completedFuture(null);
            while (reading != null) {
                LedgerEntries entries = (LedgerEntries) get(reading, phase);
                reading = null;
                try {
                    get(writing, "target-write");  // the last window is written before the next but one is read
                    long bytes = sizeOf(entries);  // also sets the size of the next window
                    if (to != null) {
                        pace(bytes);
                    }
                    read();
                    writing = forward(entries, to, digest);
                } finally {
                    entries.close();
                }
            }
            get(writing, "target-write");
            return "sha256:" + ByteBufUtil.hexDump(digest.digest());
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

        private CompletableFuture forward(LedgerEntries window, WriteAdvHandle to, MessageDigest digest) {
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

        /** Release the buffers of the read in flight; harmless if there is none. */
        void abandon() {
            if (reading != null) {
                reading.thenAccept(new Consumer() {
                    public void accept(Object entries) {
                        ((LedgerEntries) entries).close();
                    }
                });
            }
        }
    }

    // --- deleting

    /** Delete a ledger's metadata if they are unchanged, by their version; bookies then delete the entries. */
    private String delete(Job job, boolean own) throws Exception {
        Cluster cluster = own ? target : source;
        String phase = cluster.side + "-delete";
        long id = own ? job.targetId : job.ledgerId;
        Versioned found = (Versioned) get(cluster.client().getLedgerManager().readLedgerMetadata(id), phase);
        LedgerMetadata metadata = (LedgerMetadata) found.getValue();
        ObjectNode facts = facts(cluster, metadata);
        job.answer.set(cluster.side, facts);
        if (own ? !job.owns(metadata) : !isOld(job.request, facts)) {
            return "refused";
        }
        get(cluster.client().getLedgerManager().removeLedgerMetadata(id, found.getVersion()), phase);
        return "deleted";
    }

    private static boolean isOld(JsonNode request, ObjectNode facts) {
        return facts.get("state").asText().equals("closed")
            && facts.get("created_ms").asLong() == request.get("created_ms").asLong()
            && facts.get("length_bytes").asLong() == request.get("length_bytes").asLong()
            && facts.get("last_entry_id").asLong() == request.get("last_entry_id").asLong();
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
            .withPassword(cluster.password)
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
        facts.set("custom_metadata", JSON.valueToTree(metadata.getCustomMetadata()));  // its values in base64
        return facts;
    }

    /** When ZooKeeper created the ledger's node, by its own clock; null if it is gone. */
    private Long created(Cluster cluster, LedgerMetadata metadata) throws Exception {
        // Read with the metadata, unless they have a time of their own, or a version that the client reads without it.
        if (metadata.getCtime() >= 0 && !LedgerMetadataUtils.shouldStoreCtime(metadata)) {
            return Long.valueOf(metadata.getCtime());
        }
        final CompletableFuture asked = new CompletableFuture();
        BookKeeper client = cluster.client();
        boolean isLong = client.getLedgerManagerFactory() instanceof LongHierarchicalLedgerManagerFactory;
        String path = isLong ? StringUtils.getLongHierarchicalLedgerPath(metadata.getLedgerId())
            : StringUtils.getHybridHierarchicalLedgerPath(metadata.getLedgerId());
        ((ZKMetadataDriverBase) client.getMetadataClientDriver()).getZk().exists(cluster.root + path, false,
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
}
