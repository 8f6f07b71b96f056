import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.bookkeeper.mledger.LedgerOffloaderFactory;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.pulsar.common.policies.data.OffloadPolicies;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;

/** Says that it has put a ledger into tiered storage: what the broker then writes about it is the broker's own. */
public class FileOffloaderFactory implements LedgerOffloaderFactory<LedgerOffloader> {
    @Override
    public boolean isDriverSupported(String name) {
        return "filesystem".equalsIgnoreCase(name);
    }

    @Override
    public LedgerOffloader create(OffloadPoliciesImpl policies, Map<String, String> user, OrderedScheduler scheduler) {
        return new Offloader(policies);
    }

    @Override
    public LedgerOffloader create(OffloadPoliciesImpl policies, Map<String, String> user, OrderedScheduler scheduler,
            LedgerOffloaderStats stats) {
        return new Offloader(policies);
    }

    static class Offloader implements LedgerOffloader {
        private final OffloadPolicies policies;

        Offloader(OffloadPolicies policies) {
            this.policies = policies;
        }

        @Override
        public String getOffloadDriverName() {
            return "filesystem";
        }

        @Override
        public CompletableFuture<Void> offload(ReadHandle ledger, UUID id, Map<String, String> metadata) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public CompletableFuture<ReadHandle> readOffloaded(long ledger, UUID id, Map<String, String> metadata) {
            return CompletableFuture.failedFuture(new UnsupportedOperationException("nothing is kept"));
        }

        @Override
        public CompletableFuture<Void> deleteOffloaded(long ledger, UUID id, Map<String, String> metadata) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public OffloadPolicies getOffloadPolicies() {
            return policies;
        }

        @Override
        public void close() {
        }
    }
}
