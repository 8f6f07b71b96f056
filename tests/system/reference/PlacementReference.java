import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.util.HashedWheelTimer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException.BKNotEnoughBookiesException;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicyImpl;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.feature.SettableFeatureProvider;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping;
import org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy;
import org.apache.pulsar.common.policies.data.EnsemblePlacementPolicyConfig;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * Asks Pulsar's own placement policy where ledgers may lie: a question a line on standard input, an answer a line on
 * standard output, both JSON. Each question gets a policy of its own, set up as a broker does it for a namespace with
 * bookie affinity (BrokerService and BookKeeperClientFactoryImpl of Pulsar 4.2.4).
 *
 * <p>Question: racks (content of the znode /bookies, null when there is none), writable, readOnly, primary and secondary
 * (as in the namespace's local policies: group names with commas between them, or null), ensembleSize, writeQuorum,
 * ackQuorum. Answer: excluded (what the policy keeps from the ledger), ensemble (the one it chose, null when it threw
 * BKNotEnoughBookiesException).
 */
public final class PlacementReference {
    private static final String RACKS = BookieRackAffinityMapping.BOOKIE_INFO_ROOT_PATH;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HashedWheelTimer TIMER = new HashedWheelTimer();

    private PlacementReference() {}

    public static void main(String[] arguments) {
        int exitCode = 0;
        try {
            answerAll();
        } catch (Throwable error) {
            error.printStackTrace();
            exitCode = 1;
        }
        Runtime.getRuntime().halt(exitCode); // the stores' threads would keep the process alive
    }

    private static void answerAll() throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        answers.flush();
    }

    private static Map<String, Object> answer(JsonNode question) throws Exception {
        Map<String, Object> groups = groups(question);
        // Each store of the name "local" has a memory of its own; stores of any other one name share theirs.
        try (MetadataStoreExtended store =
                MetadataStoreExtended.create("memory:local", MetadataStoreConfig.builder().build())) {
            if (!question.get("racks").isNull()) {
                putRacks(store, question.get("racks").asText());
            }
            IsolatedBookieEnsemblePlacementPolicy policy = policy(store, groups);
            policy.onClusterChanged(ids(question.get("writable")), ids(question.get("readOnly")));
            return place(policy, groups, question);
        }
    }

    /** What BrokerService makes of a namespace's affinity. */
    private static Map<String, Object> groups(JsonNode question) {
        Map<String, Object> groups = new HashMap<>();
        groups.put(IsolatedBookieEnsemblePlacementPolicy.ISOLATION_BOOKIE_GROUPS, text(question.get("primary")));
        groups.put(
                IsolatedBookieEnsemblePlacementPolicy.SECONDARY_ISOLATION_BOOKIE_GROUPS,
                text(question.get("secondary")));
        return groups;
    }

    /** Write the racks and await the notification: a policy that still got it would read anew while it is asked. */
    private static void putRacks(MetadataStoreExtended store, String racks) throws Exception {
        CountDownLatch notified = new CountDownLatch(1);
        store.registerListener(notification -> notified.countDown());
        store.put(RACKS, racks.getBytes(StandardCharsets.UTF_8), Optional.empty()).get();
        notified.await();
    }

    private static IsolatedBookieEnsemblePlacementPolicy policy(
            MetadataStoreExtended store, Map<String, Object> groups) throws InterruptedException {
        ClientConfiguration conf = new ClientConfiguration();
        groups.forEach(conf::setProperty);
        conf.setProperty(BookieRackAffinityMapping.METADATA_STORE_INSTANCE, store);
        conf.setProperty(
                RackawareEnsemblePlacementPolicyImpl.REPP_DNS_RESOLVER_CLASS,
                BookieRackAffinityMapping.class.getName());
        conf.setMinNumRacksPerWriteQuorum(2); // a broker's default
        conf.setIgnoreLocalNodeInPlacementPolicy(true); // nothing else may depend on this machine's name
        IsolatedBookieEnsemblePlacementPolicy policy = new IsolatedBookieEnsemblePlacementPolicy();
        policy.initialize(
                conf, Optional.empty(), TIMER, SettableFeatureProvider.DISABLE_ALL, NullStatsLogger.INSTANCE,
                BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER);
        awaitRacks(policy);
        return policy;
    }

    /** The policy decides by the racks it has, and reads them without waiting; a broker has long read them. */
    private static void awaitRacks(IsolatedBookieEnsemblePlacementPolicy policy) throws InterruptedException {
        if (policy.getBookieMappingCache() == null) {
            return; // without a primary group it does not read them
        }
        try {
            policy.getBookieMappingCache().get(RACKS).get();
        } catch (ExecutionException unreadable) {
            // A broker goes on without them, too.
        }
    }

    private static Map<String, Object> place(
            IsolatedBookieEnsemblePlacementPolicy policy, Map<String, Object> groups, JsonNode question)
            throws IOException, EnsemblePlacementPolicyConfig.ParseEnsemblePlacementPolicyConfigException {
        byte[] config = new EnsemblePlacementPolicyConfig(IsolatedBookieEnsemblePlacementPolicy.class, groups).encode();
        Set<BookieId> excluded = new HashSet<>(); // the policy adds to it what it excludes
        Map<String, Object> answer = new HashMap<>();
        try {
            List<BookieId> ensemble = policy.newEnsemble(
                            question.get("ensembleSize").asInt(),
                            question.get("writeQuorum").asInt(),
                            question.get("ackQuorum").asInt(),
                            Map.of(EnsemblePlacementPolicyConfig.ENSEMBLE_PLACEMENT_POLICY_CONFIG, config),
                            excluded)
                    .getResult();
            answer.put("ensemble", names(ensemble));
        } catch (BKNotEnoughBookiesException tooFew) {
            answer.put("ensemble", null);
        }
        answer.put("excluded", names(excluded));
        return answer;
    }

    private static String text(JsonNode value) {
        return value.isNull() ? null : value.asText();
    }

    private static Set<BookieId> ids(JsonNode names) {
        Set<BookieId> ids = new HashSet<>();
        names.forEach(name -> ids.add(BookieId.parse(name.asText())));
        return ids;
    }

    private static Set<String> names(Iterable<BookieId> ids) {
        Set<String> names = new TreeSet<>();
        ids.forEach(id -> names.add(id.getId()));
        return names;
    }
}
