package io.sparkcrypt;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.hadoop.rewrite.ParquetRewriter;
import org.apache.parquet.hadoop.rewrite.RewriteOptions;

/** Encrypts files with parquet-java's ParquetRewriter, and prints wall and CPU seconds of each round in one JVM. */
public final class RewriterRun {
  private RewriterRun() {}

  /** Takes rounds, columns with commas, output prefix, then input files. */
  public static void main(String[] arguments) throws Exception {
    OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    List<String> columns = Arrays.asList(arguments[1].split(","));
    Configuration conf = new Configuration();
    for (int round = 0; round < Integer.parseInt(arguments[0]); round++) {
      long wall = System.nanoTime();
      long cpu = system.getProcessCpuTime();
      for (int file = 3; file < arguments.length; file++) {
        rewrite(conf, arguments[file], arguments[2] + round + "-" + file + ".parquet", columns);
      }
      System.out.println((System.nanoTime() - wall) / 1e9 + " " + (system.getProcessCpuTime() - cpu) / 1e9);
      for (int file = 3; file < arguments.length; file++) {
        Path target = new Path(arguments[2] + round + "-" + file + ".parquet");
        target.getFileSystem(conf).delete(target, false);
      }
    }
  }

  private static byte[] key() {
    byte[] key = new byte[16];
    new SecureRandom().nextBytes(key);
    return key;
  }

  private static void rewrite(Configuration conf, String source, String target, List<String> columns) throws Exception {
    Map<ColumnPath, ColumnEncryptionProperties> encrypted = new HashMap<>();
    for (String column : columns) {
      encrypted.put(
          ColumnPath.get(column), ColumnEncryptionProperties.builder(column).withKey(key()).withKeyID(column).build());
    }
    FileEncryptionProperties properties =
        FileEncryptionProperties.builder(key()).withFooterKeyID("footer").withEncryptedColumns(encrypted).build();
    RewriteOptions options =
        new RewriteOptions.Builder(conf, new Path(source), new Path(target))
            .encrypt(columns)
            .encryptionProperties(properties)
            .build();
    try (ParquetRewriter rewriter = new ParquetRewriter(options)) {
      rewriter.processBlocks();
    }
  }
}
