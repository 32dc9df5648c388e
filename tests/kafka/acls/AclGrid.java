import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** Reads rules and questions, one per line, and writes what Kafka's own StandardAuthorizer decides. */
public class AclGrid {
    public static void main(String[] arguments) throws Exception {
        StandardAuthorizer authorizer = null;
        StringBuilder answers = new StringBuilder();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    Map<String, Object> configs = new HashMap<>();
                    configs.put("super.users", words[1]);
                    configs.put("allow.everyone.if.no.acl.found", words[2]);
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.configure(configs);
                    authorizer.completeInitialLoad();
                }
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]), words[4], words[5],
                    AclOperation.valueOf(words[6]), AclPermissionType.valueOf(words[7])));
                case "ask" -> {
                    Context context = new Context(words[1], words[2]);
                    Action action = new Action(AclOperation.valueOf(words[3]), new ResourcePattern(
                        ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL), 1, false, false);
                    answers.append(authorizer.authorize(context, List.of(action)).get(0)).append('\n');
                }
                case "any" -> {
                    Context context = new Context(words[1], words[2]);
                    answers.append(authorizer.authorizeByResourceType(
                        context, AclOperation.valueOf(words[3]), ResourceType.valueOf(words[4]))).append('\n');
                }
            }
        }
        System.out.print(answers);
    }

    static class Context implements AuthorizableRequestContext {
        private final KafkaPrincipal principal;
        private final InetAddress address;

        Context(String principal, String host) throws Exception {
            this.principal = SecurityUtils.parseKafkaPrincipal(principal);
            this.address = InetAddress.getByName(host);
        }

        public String listenerName() { return "SASL_SSL"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
        public KafkaPrincipal principal() { return principal; }
        public InetAddress clientAddress() { return address; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }
}
