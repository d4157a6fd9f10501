import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Reads whole topics with the stock pull request, every queue from its min offset to its max offset. */
final class Puller {
    private static final int SUBSCRIPTION_FLAG = 4;
    private static final int PULL_NOT_FOUND = 19;
    private static final int PULL_RETRY_IMMEDIATELY = 20;
    private static final int PULL_OFFSET_MOVED = 21;

    private static final int SYSFLAG_POSITION = 36;

    private final Requests requests;

    Puller(Requests requests) {
        this.requests = requests;
    }

    /** Pulls from one address, or from all masters of the topic; waits until there are at least so many messages. */
    List<Map<String, Object>> pull(String addr, String topic, long atLeast, long waitMs) throws Exception {
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        while (true) {
            List<String> brokers = new ArrayList<>();
            if (addr == null || addr.isEmpty()) {
                brokers.addAll(requests.brokersOf(topic));
            } else {
                brokers.add(addr);
            }
            long there = 0;
            for (String b : brokers) {
                there += count(b, topic);
            }
            if (there >= atLeast && !brokers.isEmpty()) {
                List<Map<String, Object>> found = new ArrayList<>();
                for (String b : brokers) {
                    for (int q : requests.queues(b, topic)) {
                        pullQueue(b, topic, q, found);
                    }
                }
                return found;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + " holds " + there + " messages on " + brokers + ", wanted " + atLeast
                    + " within " + waitMs + " ms");
            }
            Thread.sleep(50);
        }
    }

    private long count(String addr, String topic) throws Exception {
        long n = 0;
        for (int q : requests.queues(addr, topic)) {
            n += maxOffset(addr, topic, q) - minOffset(addr, topic, q);
        }
        return n;
    }

    long maxOffset(String addr, String topic, int queue) throws Exception {
        return offset(addr, 30, topic, queue);
    }

    long minOffset(String addr, String topic, int queue) throws Exception {
        return Math.max(0, offset(addr, 31, topic, queue));
    }

    private long offset(String addr, int code, String topic, int queue) throws Exception {
        RemotingCommand r = requests.call(addr, code, "topic", topic, "queueId", queue);
        return Long.parseLong(Requests.must("offset of " + topic, r).getExtFields().get("offset"));
    }

    private void pullQueue(String addr, String topic, int queue, List<Map<String, Object>> found) throws Exception {
        long next = minOffset(addr, topic, queue);
        long end = maxOffset(addr, topic, queue);
        while (next < end) {
            RemotingCommand r = requests.call(addr, 11, "consumerGroup", "driver-pull", "topic", topic, "queueId", queue,
                "queueOffset", next, "maxMsgNums", 32, "sysFlag", SUBSCRIPTION_FLAG, "commitOffset", 0,
                "suspendTimeoutMillis", 0, "subscription", "*", "subVersion", 0, "expressionType", "TAG");
            int code = r.getCode();
            if (code != Requests.SUCCESS && code != PULL_NOT_FOUND && code != PULL_RETRY_IMMEDIATELY && code != PULL_OFFSET_MOVED) {
                Requests.must("pull " + topic + "/" + queue + " at " + next + " from " + addr, r);
            }
            if (code == Requests.SUCCESS) {
                ByteBuffer records = ByteBuffer.wrap(r.getBody());
                for (MessageExt m : MessageDecoder.decodes(records.duplicate())) {
                    Map<String, Object> message = describe(m);
                    // Clients of 5.x clear flags while they decode: take them as they were stored.
                    message.put("sysFlag", records.getInt(records.position() + SYSFLAG_POSITION));
                    records.position(records.position() + records.getInt(records.position()));
                    found.add(message);
                }
            }
            long follows = Long.parseLong(r.getExtFields().get("nextBeginOffset"));
            if (follows == next) {
                throw new IllegalStateException("pull " + topic + "/" + queue + " stays at " + next + " of " + end + ", code " + code);
            }
            next = follows;
        }
    }

    static Map<String, Object> describe(MessageExt m) {
        Map<String, Object> o = new HashMap<>();
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        o.put("topic", m.getTopic());
        o.put("queueId", m.getQueueId());
        o.put("queueOffset", m.getQueueOffset());
        o.put("phyOffset", m.getCommitLogOffset());
        o.put("storeSize", m.getStoreSize());
        o.put("sysFlag", m.getSysFlag());
        o.put("msgId", m.getProperties().getOrDefault("UNIQ_KEY", ""));
        o.put("keys", m.getKeys());
        o.put("tags", m.getTags());
        o.put("props", m.getProperties());
        o.put("bodySize", body.length);
        o.put("bodySha256", Spec.sha256(body));
        o.put("bornHost", m.getBornHost().toString());
        o.put("storeHost", m.getStoreHost().toString());
        o.put("storeTimestamp", m.getStoreTimestamp());
        return o;
    }
}
