package io.sparkcrypt;

import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import scala.Option;

/**
 * Spark's own commit protocol, which also prepares ORC files, records where files for custom partition locations will be moved,
 * and refuses a write that would bypass sparkcrypt's factory.
 *
 * <p>A file for a custom location is staged without partition folders and with a UUID before its name, so its path does not show
 * its identity.
 */
public class IdentityCommitProtocol extends SQLHadoopMapReduceCommitProtocol {
  static {
    Preload.classes();
  }

  private static final long serialVersionUID = 1L;

  public IdentityCommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, dynamicPartitionOverwrite);
  }

  @Override
  public void setupJob(JobContext job) {
    FactoryCheck.check(job.getConfiguration());
    job.getConfiguration().set(Names.STREAM, "batch"); // within a stream, a write of foreachBatch
    super.setupJob(job);
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext taskContext, Option<String> dir, FileNameSpec spec) {
    String temporary = super.newTaskTempFile(taskContext, dir, spec);
    OrcWrite.prepare(taskContext.getConfiguration(), temporary, null);
    return temporary;
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext taskContext, String absoluteDir, FileNameSpec spec) {
    String temporary = super.newTaskTempFileAbsPath(taskContext, absoluteDir, spec);
    String target = absoluteDir + "/" + getFilename(taskContext, spec);
    Targets.remember(temporary, target);
    OrcWrite.prepare(taskContext.getConfiguration(), temporary, target);
    return temporary;
  }
}
