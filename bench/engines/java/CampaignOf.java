import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** An ad's campaign, from a file of lines {@code ad,campaign}: a table on every task, as broadcast. */
public final class CampaignOf extends ScalarFunction {
    private transient Map<String, String> campaigns;

    @Override
    public void open(FunctionContext context) throws IOException {
        campaigns = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(context.getJobParameter("ads", "")))) {
            String[] parts = line.split(",");
            campaigns.put(parts[0], parts[1]);
        }
    }

    public String eval(String ad) {
        return campaigns.get(ad);
    }
}
