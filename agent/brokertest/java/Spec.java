import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** What to send, and the messages made from it. The body follows from run and number alone, and keys are unique. */
final class Spec {
    /** Keeps the keys of one driver apart from those of every other. */
    private static final String DRIVER = Long.toString(ThreadLocalRandom.current().nextLong(Long.MAX_VALUE), 36);

    final String topic;
    final String kind;
    final String via;
    final long count;
    final int threads;
    final int timeoutMs;
    final int batchSize;
    final int rollbackEvery;
    final double rate;
    private final String tags;
    private final String keyPrefix;
    private final int bodySize;
    private final int delayLevel;
    private final long delayMs;
    private final Map<String, String> props = new HashMap<>();

    Spec(JSONObject o) {
        topic = o.getString("topic");
        kind = o.getString("kind");
        via = o.getString("via") == null ? "" : o.getString("via");
        count = o.getLongValue("count");
        threads = o.getIntValue("threads");
        timeoutMs = o.getIntValue("timeoutMs");
        batchSize = o.getIntValue("batchSize");
        rollbackEvery = o.getIntValue("rollbackEvery");
        rate = o.getDoubleValue("rate");
        tags = o.getString("tags");
        keyPrefix = o.getString("keyPrefix");
        bodySize = o.getIntValue("bodySize");
        delayLevel = o.getIntValue("delayLevel");
        delayMs = o.getLongValue("delayMs");
        JSONObject p = o.getJSONObject("props");
        if (p != null) {
            for (String name : p.keySet()) {
                props.put(name, p.getString(name));
            }
        }
    }

    Message message(int run, long i) {
        String key = keyPrefix + DRIVER + "-" + run + "-" + i;
        Message m = new Message(topic, body(run, i));
        m.setKeys(key);
        if (tags != null && !tags.isEmpty()) {
            m.setTags(tags);
        }
        for (Map.Entry<String, String> e : props.entrySet()) {
            m.putUserProperty(e.getKey(), e.getValue());
        }
        if (kind.equals("delayed")) {
            m.setDelayTimeLevel(delayLevel);
        }
        if (kind.equals("timed")) {
            MessageAccessor.putProperty(m, "TIMER_DELAY_MS", String.valueOf(delayMs));
        }
        return m;
    }

    private byte[] body(int run, long i) {
        byte[] body = new byte[bodySize];
        if (kind.equals("compressed")) {
            byte[] line = ("line of message " + run + "-" + i + "\n").getBytes(StandardCharsets.UTF_8);
            for (int j = 0; j < body.length; j++) {
                body[j] = line[j % line.length];
            }
        } else {
            new Random(run * 1_000_003L + i).nextBytes(body);
        }
        return body;
    }

    /** What is known of a message before it is sent. */
    Map<String, Object> entry(Message m) {
        Map<String, Object> e = new HashMap<>();
        e.put("topic", m.getTopic());
        e.put("kind", kind);
        e.put("key", m.getKeys());
        e.put("tags", m.getTags());
        e.put("props", props);
        e.put("bodySize", m.getBody().length);
        e.put("bodySha256", sha256(m.getBody()));
        e.put("queueId", -1);
        e.put("queueOffset", -1);
        e.put("phyOffset", -1);
        return e;
    }

    static String sha256(byte[] data) {
        try {
            StringBuilder hex = new StringBuilder(64);
            for (byte b : MessageDigest.getInstance("SHA-256").digest(data)) {
                hex.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
