import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Consumer groups and their committed positions. */
final class Groups {
    private static final int QUERY_NOT_FOUND = 22;

    private final String nameServer;
    private final Requests requests;
    private final Puller puller;

    Groups(String nameServer, Requests requests, Puller puller) {
        this.nameServer = nameServer;
        this.requests = requests;
        this.puller = puller;
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

    /** Consumes exactly so many messages with the stock push consumer, and waits until the broker holds the new positions. */
    List<Map<String, Object>> consume(String group, String topic, int count, long waitMs) throws Exception {
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        for (String addr : requests.brokersOf(topic)) {
            create(addr, group);
        }
        List<Map<String, Object>> got = new ArrayList<>();
        Map<MessageQueue, Long> want = new ConcurrentHashMap<>();
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consume-" + group + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            synchronized (got) {
                if (got.size() >= count) {
                    context.setSuspendCurrentQueueTimeMillis(30_000);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                messages.forEach(m -> got.add(Puller.describe(m)));
            }
            MessageQueue queue = context.getMessageQueue();
            messages.forEach(m -> want.merge(queue, m.getQueueOffset() + 1, Math::max));
            left.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        boolean whole = left.await(waitMs, TimeUnit.MILLISECONDS);
        if (whole) {
            awaitOwnPositions(consumer, want, deadline);
        }
        consumer.shutdown();
        if (!whole) {
            throw new IllegalStateException(group + " consumed " + got.size() + " of " + count + " messages of " + topic);
        }
        awaitPositions(group, topic, got, deadline);
        return got;
    }

    /** The consumer moves its own position only after the listener has returned; what it has not moved it does not commit. */
    private static void awaitOwnPositions(DefaultMQPushConsumer consumer, Map<MessageQueue, Long> want, long deadline) throws Exception {
        OffsetStore own = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        for (Map.Entry<MessageQueue, Long> e : want.entrySet()) {
            while (own.readOffset(e.getKey(), ReadOffsetType.READ_FROM_MEMORY) < e.getValue()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the consumer does not reach " + e);
                }
                Thread.sleep(5);
            }
        }
    }

    private void awaitPositions(String group, String topic, List<Map<String, Object>> got, long deadline) throws Exception {
        Map<String, Long> want = new HashMap<>();
        for (Map<String, Object> m : got) {
            want.merge(String.valueOf(m.get("queueId")), (Long) m.get("queueOffset") + 1, Math::max);
        }
        while (true) {
            Map<String, Long> have = offsets(null, group, topic);
            if (want.entrySet().stream().allMatch(e -> have.getOrDefault(e.getKey(), -1L) >= e.getValue())) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(group + " is at " + have + ", wanted " + want);
            }
            Thread.sleep(20);
        }
    }
}
