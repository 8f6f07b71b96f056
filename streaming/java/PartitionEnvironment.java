package headgate;

import java.util.HashMap;
import org.apache.spark.TaskContext;

/**
 * The environment of Python workers, of which each partition has its own: Spark shares workers between tasks of equal
 * environments, in the order in which they came free.
 */
public class PartitionEnvironment extends HashMap {
    @Override
    public Object put(Object name, Object value) {
        TaskContext task = TaskContext.get();
        if (task != null) { // Spark adds some variables of its own, in the task
            super.put("HEADGATE_PARTITION", String.valueOf(task.partitionId()));
        }
        return super.put(name, value);
    }
}
