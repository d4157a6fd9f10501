import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Consumer groups and their committed positions. */
final class Groups {
    private static final int QUERY_NOT_FOUND = 22;

    private final String nameServer;
    private final Requests requests;

    Groups(String nameServer, Requests requests) {
        this.nameServer = nameServer;
        this.requests = requests;
    }

    /** 5.x keeps no position of a group that it does not know, so groups are made before they are used. */
    private void create(String addr, String group) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("groupName", group);
        config.put("consumeEnable", true);
        config.put("consumeFromMinEnable", true);
        config.put("consumeBroadcastEnable", true);
        config.put("retryQueueNums", 1);
        config.put("retryMaxTimes", 16);
        config.put("brokerId", 0);
        config.put("whichBrokerWhenConsumeSlowly", 1);
        config.put("notifyConsumerIdsChangedEnable", true);
        byte[] body = JSON.toJSONString(config).getBytes(StandardCharsets.UTF_8);
        Requests.must("create group " + group, requests.callWithBody(addr, 200, body, 10_000));
    }

    void commit(String group, String topic, JSONObject offsets) throws Exception {
        for (String addr : requests.brokersOf(topic)) {
            create(addr, group);
            for (String queue : offsets.keySet()) {
                Requests.must("commit " + group + " " + topic + "/" + queue, requests.call(addr, 15, "consumerGroup", group,
                    "topic", topic, "queueId", queue, "commitOffset", offsets.getLongValue(queue)));
            }
        }
    }

    Map<String, Long> offsets(String addr, String group, String topic) throws Exception {
        List<String> brokers = addr == null || addr.isEmpty() ? requests.brokersOf(topic) : Collections.singletonList(addr);
        Map<String, Long> found = new HashMap<>();
        for (String broker : brokers) {
            for (int queue : requests.queues(broker, topic)) {
                RemotingCommand r = requests.call(broker, 14, "consumerGroup", group, "topic", topic, "queueId", queue,
                    "setZeroIfNotFound", false);
                if (r.getCode() != QUERY_NOT_FOUND) {
                    Requests.must("position of " + group + " in " + topic + "/" + queue, r);
                    found.put(String.valueOf(queue), Long.parseLong(r.getExtFields().get("offset")));
                }
            }
        }
        return found;
    }

    /**
     * Consumes so many messages with the stock pull consumer, queue after queue from the committed positions, and commits. A group
     * of push consumers would take its time over who gets which queue, and could not stop after exactly so many.
     */
    List<Map<String, Object>> consume(String group, String topic, int count, long waitMs) throws Exception {
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        for (String addr : requests.brokersOf(topic)) {
            try {
                create(addr, group);
            } catch (IllegalStateException e) {
                if (!e.getMessage().contains("from slave broker")) { // it has its master's groups
                    throw e;
                }
            }
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consume-" + group + "-" + System.nanoTime());
        consumer.start();
        try {
            List<Map<String, Object>> got = new ArrayList<>();
            while (true) {
                for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                    consumeQueue(consumer, queue, count, got);
                }
                if (got.size() == count) {
                    return got;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(group + " consumed " + got.size() + " of " + count + " messages of " + topic);
                }
                Thread.sleep(50);
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Consumes what the queue holds beyond the committed position, until there are count messages in all. */
    private static void consumeQueue(DefaultMQPullConsumer consumer, MessageQueue queue, int count, List<Map<String, Object>> got)
        throws Exception {
        long committed = consumer.fetchConsumeOffset(queue, true);
        long next = Math.max(committed, consumer.minOffset(queue));
        long end = consumer.maxOffset(queue);
        while (next < end && got.size() < count) {
            PullResult r = consumer.pull(queue, "*", next, Math.min(32, count - got.size()));
            if (r.getPullStatus() == PullStatus.FOUND) {
                r.getMsgFoundList().forEach(m -> got.add(Puller.describe(m)));
            }
            next = r.getNextBeginOffset();
        }
        if (next > committed) {
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, next, false);
        }
    }
}
