package io.sparkcrypt;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;

/** Whether a file is written by a stream whose commit protocol has not said which table the stream writes. */
final class UntoldStreamCheck {
  private UntoldStreamCheck() {}

  static boolean isUntold(Configuration conf) {
    try {
      return conf.get(Names.STREAM) == null && SparkSide.isStream();
    } catch (LinkageError e) {
      return false; // parquet-mr without Spark
    }
  }

  /** Apart, so that this class loads where Spark's classes are not. */
  private static final class SparkSide {
    static boolean isStream() {
      TaskContext task = TaskContext.get();
      return task != null && task.getLocalProperty(Reader.STREAM_QUERY_ID) != null;
    }
  }
}
