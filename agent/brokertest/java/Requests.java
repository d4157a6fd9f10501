import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Single requests by their code, sent through the stock remoting client. Requests are built from codes and fields because their
 * Java classes moved to other packages in 5.x, and one source has to serve all versions.
 */
final class Requests {
    static final int SUCCESS = 0;
    static final int TOPIC_NOT_EXIST = 17;
    private static final long TIMEOUT_MS = 10_000;
    private static final Pattern MASTER = Pattern.compile("[{,]\"?0\"?:\"([^\"]+)\"");
    private static final Pattern ANY_BROKER = Pattern.compile("[{,]\"?[0-9]+\"?:\"([^\"]+)\"");
    private static final Pattern QUEUE = Pattern.compile("\"queueId\\\\?\":([0-9]+)");

    private final String nameServer;
    private final NettyRemotingClient client;

    Requests(String nameServer) {
        this.nameServer = nameServer;
        NettyClientConfig config = new NettyClientConfig();
        config.setConnectTimeoutMillis(5_000);
        this.client = new NettyRemotingClient(config);
        this.client.start();
    }

    /** Sends a request whose fields are given as name, value, name, value. */
    RemotingCommand callWithBody(String addr, int code, byte[] body, long timeoutMs, Object... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        for (int i = 0; i < fields.length; i += 2) {
            request.addExtField((String) fields[i], String.valueOf(fields[i + 1]));
        }
        if (body != null) {
            request.setBody(body);
        }
        return client.invokeSync(addr, request, timeoutMs);
    }

    RemotingCommand call(String addr, int code, Object... fields) throws Exception {
        return callWithBody(addr, code, null, TIMEOUT_MS, fields);
    }

    static RemotingCommand must(String what, RemotingCommand answer) {
        if (answer.getCode() != SUCCESS) {
            throw new IllegalStateException(what + ": code " + answer.getCode() + ": " + answer.getRemark());
        }
        return answer;
    }

    /** The brokers that serve a topic: the masters, or, where a group has none alive, what there is. */
    List<String> brokersOf(String topic) throws Exception {
        RemotingCommand answer = call(nameServer, 105, "topic", topic);
        if (answer.getCode() == TOPIC_NOT_EXIST) {
            return new ArrayList<>();
        }
        return addresses(text(must("route of " + topic, answer)));
    }

    /** Every master that the name server knows. */
    List<String> masters() throws Exception {
        return addresses(text(must("cluster", call(nameServer, 106))));
    }

    private static List<String> addresses(String json) {
        TreeSet<String> found = find(MASTER, json);
        return new ArrayList<>(found.isEmpty() ? find(ANY_BROKER, json) : found);
    }

    /** The queues of a topic on one broker; empty where the broker does not have the topic. */
    List<Integer> queues(String addr, String topic) throws Exception {
        RemotingCommand answer = call(addr, 202, "topic", topic);
        List<Integer> queues = new ArrayList<>();
        if (answer.getCode() == TOPIC_NOT_EXIST) {
            return queues;
        }
        for (String q : find(QUEUE, text(must("queues of " + topic, answer)))) {
            queues.add(Integer.valueOf(q));
        }
        queues.sort(null);
        return queues;
    }

    void createTopic(String topic, int queues, long waitMs) throws Exception {
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        List<String> masters = masters();
        if (masters.isEmpty()) {
            throw new IllegalStateException("the name server " + nameServer + " knows no broker");
        }
        for (String addr : masters) {
            must("create topic " + topic + " on " + addr, call(addr, 17, "topic", topic, "defaultTopic", "TBW102",
                "readQueueNums", queues, "writeQueueNums", queues, "perm", 6, "topicFilterType", "SINGLE_TAG",
                "topicSysFlag", 0, "order", false));
        }
        while (!brokersOf(topic).containsAll(masters)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("topic " + topic + " did not reach the name server in " + waitMs + " ms");
            }
            Thread.sleep(20);
        }
    }

    private static TreeSet<String> find(Pattern pattern, String text) {
        TreeSet<String> found = new TreeSet<>();
        for (Matcher m = pattern.matcher(text); m.find(); ) {
            found.add(m.group(1));
        }
        return found;
    }

    private static String text(RemotingCommand answer) {
        return answer.getBody() == null ? "" : new String(answer.getBody(), StandardCharsets.UTF_8);
    }
}
