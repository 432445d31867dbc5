package bench;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.util.TaskCompletionListener;

/** An ad's campaign, looked up in Redis. Each task gets a copy, which connects at its first ad. */
public final class SparkCampaign implements UDF1<String, String> {
    private final int port;
    private transient Campaigns campaigns;

    public SparkCampaign(int port) {
        this.port = port;
    }

    @Override
    public String call(String ad) {
        if (campaigns == null) {
            campaigns = new Campaigns(port);
            TaskCompletionListener close = context -> campaigns.close();
            TaskContext.get().addTaskCompletionListener(close);
        }
        return campaigns.of(ad);
    }
}
