import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Sends messages of every kind, each exactly once: a failed send is reported, never tried again. */
final class Senders {
    private static final int MAX_MESSAGE = 15 * 1024 * 1024;

    private final String nameServer;
    private final Requests requests;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final AtomicInteger runs = new AtomicInteger();

    Senders(String nameServer, Requests requests) {
        this.nameServer = nameServer;
        this.requests = requests;
    }

    Job start(JSONObject spec) throws Exception {
        Job job = new Job(spec);
        job.start();
        return job;
    }

    private synchronized DefaultMQProducer producer(boolean transactional, boolean compress, int timeoutMs) throws Exception {
        String name = "driver-" + (transactional ? "tx-" : "") + (compress ? "zip-" : "") + timeoutMs;
        DefaultMQProducer p = producers.get(name);
        if (p != null) {
            return p;
        }
        if (transactional) {
            TransactionMQProducer tx = new TransactionMQProducer(name);
            tx.setTransactionListener(new Outcome());
            p = tx;
        } else {
            p = new DefaultMQProducer(name);
        }
        p.setNamesrvAddr(nameServer);
        p.setInstanceName(name);
        p.setSendMsgTimeout(timeoutMs);
        p.setRetryTimesWhenSendFailed(0);
        p.setMaxMessageSize(MAX_MESSAGE);
        p.setCompressMsgBodyOverHowmuch(compress ? 4096 : Integer.MAX_VALUE);
        p.start();
        producers.put(name, p);
        return p;
    }

    /** Decides a transaction by what the sender asked for. */
    private static final class Outcome implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message m, Object rollback) {
            return (Boolean) rollback ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            return LocalTransactionState.UNKNOW;
        }
    }

    /** One run of sending: a count of messages, or until stopped. */
    final class Job {
        private final Spec spec;
        private final int run = runs.incrementAndGet();
        private final AtomicLong next = new AtomicLong();
        private final List<Thread> threads = new ArrayList<>();
        private final List<Map<String, Object>> sent = Collections.synchronizedList(new ArrayList<>());
        private volatile boolean stopped;
        private volatile Throwable failure;
        private DefaultMQProducer producer;

        Job(JSONObject spec) {
            this.spec = new Spec(spec);
        }

        void start() throws Exception {
            if (spec.via.isEmpty()) {
                producer = producer(spec.kind.equals("transactional"), spec.kind.equals("compressed"), spec.timeoutMs);
            }
            long begin = System.nanoTime();
            for (int i = 0; i < spec.threads; i++) {
                Thread t = new Thread(() -> work(begin), "sender-" + run + "-" + i);
                threads.add(t);
                t.start();
            }
        }

        void stop() {
            stopped = true;
            threads.forEach(LockSupport::unpark);
        }

        List<Map<String, Object>> finish() throws Exception {
            for (Thread t : threads) {
                t.join();
            }
            if (failure != null) {
                throw new IllegalStateException("sender failed", failure);
            }
            return sent;
        }

        private void work(long begin) {
            int step = spec.kind.equals("batch") ? spec.batchSize : 1;
            try {
                while (!stopped) {
                    long first = next.getAndAdd(step);
                    if (spec.count > 0 && first >= spec.count) {
                        return;
                    }
                    if (!awaitTurn(begin, first)) {
                        return;
                    }
                    int n = spec.count > 0 ? (int) Math.min(step, spec.count - first) : step;
                    sent.addAll(spec.kind.equals("batch") ? sendBatch(first, n) : sendOne(first));
                }
            } catch (Throwable e) {
                failure = e;
            }
        }

        /** Waits until the rate allows message i; false if the run was stopped meanwhile. */
        private boolean awaitTurn(long begin, long i) {
            if (spec.rate <= 0) {
                return true;
            }
            long due = begin + (long) (i * 1e9 / spec.rate);
            for (long left = due - System.nanoTime(); left > 0 && !stopped; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            return !stopped;
        }

        private List<Map<String, Object>> sendOne(long i) throws Exception {
            Message m = spec.message(run, i);
            Map<String, Object> entry = spec.entry(m);
            boolean rollback = spec.rollbackEvery > 0 && (i + 1) % spec.rollbackEvery == 0;
            long t0 = System.nanoTime();
            try {
                if (!spec.via.isEmpty()) {
                    sendVia(m, (int) i, entry);
                } else if (spec.kind.equals("transactional")) {
                    entry.put("rolledBack", rollback);
                    place(entry, ((TransactionMQProducer) producer).sendMessageInTransaction(m, rollback), 0);
                } else {
                    place(entry, producer.send(m, spec.timeoutMs), 0);
                }
            } catch (Exception e) {
                fail(entry, e);
            }
            entry.put("latencyMicros", (System.nanoTime() - t0) / 1000);
            entry.put("msgId", MessageClientIDSetter.getUniqID(m));
            return Collections.singletonList(entry);
        }

        private List<Map<String, Object>> sendBatch(long first, int n) {
            List<Message> batch = new ArrayList<>();
            List<Map<String, Object>> entries = new ArrayList<>();
            for (int j = 0; j < n; j++) {
                batch.add(spec.message(run, first + j));
                entries.add(spec.entry(batch.get(j)));
            }
            long t0 = System.nanoTime();
            SendResult result = null;
            Exception error = null;
            try {
                result = producer.send(batch, spec.timeoutMs);
            } catch (Exception e) {
                error = e;
            }
            long micros = (System.nanoTime() - t0) / 1000;
            for (int j = 0; j < n; j++) {
                Map<String, Object> entry = entries.get(j);
                entry.put("latencyMicros", micros);
                entry.put("msgId", MessageClientIDSetter.getUniqID(batch.get(j)));
                if (error != null) {
                    fail(entry, error);
                } else {
                    place(entry, result, j);
                }
            }
            return entries;
        }

        private void place(Map<String, Object> entry, SendResult r, int index) {
            entry.put("status", r.getSendStatus().name());
            entry.put("queueId", r.getMessageQueue().getQueueId());
            entry.put("brokerName", r.getMessageQueue().getBrokerName());
            entry.put("queueOffset", r.getQueueOffset() + index);
            setOffset(entry, r.getOffsetMsgId(), index);
        }

        private void setOffset(Map<String, Object> entry, String offsetMsgIds, int index) {
            String[] ids = offsetMsgIds == null ? new String[0] : offsetMsgIds.split(",");
            if (index < ids.length && ids[index].length() > 16) {
                String id = ids[index];
                entry.put("offsetMsgId", id);
                entry.put("phyOffset", Long.parseUnsignedLong(id.substring(id.length() - 16), 16));
            }
        }

        private void fail(Map<String, Object> entry, Exception e) {
            entry.put("status", "ERROR");
            entry.put("err", e.toString());
        }

        /** Sends to the broker's port under another host than the one in its route, with the stock request. */
        private void sendVia(Message m, int i, Map<String, Object> entry) throws Exception {
            List<String> brokers = requests.brokersOf(m.getTopic());
            if (brokers.isEmpty()) {
                throw new IllegalStateException("no route for topic " + m.getTopic() + ": create it first");
            }
            String addr = brokers.get(i % brokers.size());
            int queues = requests.queues(addr, m.getTopic()).size();
            String target = spec.via + addr.substring(addr.lastIndexOf(':'));
            MessageClientIDSetter.setUniqID(m);
            RemotingCommand r = requests.callWithBody(target, 10, m.getBody(), spec.timeoutMs, "producerGroup", "driver-via",
                "topic", m.getTopic(), "defaultTopic", "TBW102", "defaultTopicQueueNums", 4, "queueId", i % queues, "sysFlag", 0,
                "bornTimestamp", System.currentTimeMillis(), "flag", 0, "properties",
                MessageDecoder.messageProperties2String(m.getProperties()), "reconsumeTimes", 0, "unitMode", false, "batch", false);
            entry.put("status", status(r));
            if (r.getExtFields() != null && r.getExtFields().containsKey("queueOffset")) {
                entry.put("queueId", Integer.parseInt(r.getExtFields().get("queueId")));
                entry.put("queueOffset", Long.parseLong(r.getExtFields().get("queueOffset")));
                setOffset(entry, r.getExtFields().get("msgId"), 0);
            }
        }

        private String status(RemotingCommand r) {
            switch (r.getCode()) {
                case 0:
                    return "SEND_OK";
                case 10:
                    return "FLUSH_DISK_TIMEOUT";
                case 11:
                    return "SLAVE_NOT_AVAILABLE";
                case 12:
                    return "FLUSH_SLAVE_TIMEOUT";
                default:
                    throw new IllegalStateException("code " + r.getCode() + ": " + r.getRemark());
            }
        }
    }
}
