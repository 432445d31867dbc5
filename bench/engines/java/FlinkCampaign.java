package bench;

import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** An ad's campaign, looked up in Redis. */
public final class FlinkCampaign extends ScalarFunction {
    private transient Campaigns campaigns;

    @Override
    public void open(FunctionContext context) {
        campaigns = new Campaigns(Integer.parseInt(context.getJobParameter("redis", "")));
    }

    public String eval(String ad) {
        return campaigns.of(ad);
    }

    @Override
    public void close() {
        campaigns.close();
    }
}
