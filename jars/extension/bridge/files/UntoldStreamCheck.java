package io.sparkcrypt;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;

/** A check whether a file is written by a stream whose commit protocol has not set the stream's table. */
final class UntoldStreamCheck {
  private UntoldStreamCheck() {}

  static boolean isUntold(Configuration conf) {
    try {
      return conf.get(Names.STREAM) == null && SparkSide.isStream();
    } catch (LinkageError e) {
      return false; // parquet-mr without Spark
    }
  }

  /** The part that needs Spark's classes, kept apart so that the outer class loads without them. */
  private static final class SparkSide {
    static boolean isStream() {
      TaskContext task = TaskContext.get();
      return task != null && task.getLocalProperty(Reader.STREAM_QUERY_ID) != null;
    }
  }
}
