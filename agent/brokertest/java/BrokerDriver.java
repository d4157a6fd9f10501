import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A long-running client. Each line of standard input is one command, a JSON object with "id", "op" and "args"; each line of
 * standard output is one answer, with the same "id" and either "result" or "error". Commands run concurrently. The program
 * ends when its standard input does.
 */
public final class BrokerDriver {
    private final PrintStream answers;
    private final Requests requests;
    private final Senders senders;
    private final Puller puller;
    private final Groups groups;
    private final Map<Long, Senders.Job> jobs = new ConcurrentHashMap<>();

    private BrokerDriver(PrintStream answers, String nameServer) {
        this.answers = answers;
        this.requests = new Requests(nameServer);
        this.senders = new Senders(nameServer, requests);
        this.puller = new Puller(requests);
        this.groups = new Groups(nameServer, requests);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // libraries print on standard output too
        BrokerDriver driver = new BrokerDriver(answers, args[0]);
        driver.answer(0, new JSONObject(), null);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            pool.execute(() -> driver.run(command));
        }
        System.exit(0);
    }

    private void run(JSONObject command) {
        long id = command.getLongValue("id");
        JSONObject args = command.getJSONObject("args");
        try {
            answer(id, execute(id, command.getString("op"), args == null ? new JSONObject() : args), null);
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer(id, null, trace.toString());
        }
    }

    private Object execute(long id, String op, JSONObject a) throws Exception {
        switch (op) {
            case "send":
                return senders.start(a).finish();
            case "start": {
                jobs.put(id, senders.start(a));
                return id;
            }
            case "stop": {
                Senders.Job job = jobs.remove(a.getLongValue("job"));
                job.stop();
                return job.finish();
            }
            case "createTopic":
                requests.createTopic(a.getString("topic"), a.getIntValue("queues"), a.getLongValue("waitMs"));
                return null;
            case "pull":
                return puller.pull(a.getString("addr"), a.getString("topic"), a.getLongValue("atLeast"), a.getLongValue("waitMs"));
            case "commit":
                groups.commit(a.getString("group"), a.getString("topic"), a.getJSONObject("offsets"));
                return null;
            case "offsets":
                return groups.offsets(a.getString("addr"), a.getString("group"), a.getString("topic"));
            case "consume":
                return groups.consume(a.getString("group"), a.getString("topic"), a.getIntValue("count"), a.getLongValue("waitMs"));
            default:
                throw new IllegalArgumentException("unknown operation " + op);
        }
    }

    private void answer(long id, Object result, String error) {
        Map<String, Object> m = new HashMap<>();
        m.put("id", id);
        m.put("result", result);
        m.put("error", error);
        String line = JSON.toJSONString(m, SerializerFeature.DisableCircularReferenceDetect);
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }
}
