package io.sparkcrypt;

import java.io.IOException;
import java.io.Serializable;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/** Spark's own ORC source with a check of each file by the helper before its rows are read. */
final class CheckedOrcFormat extends OrcFileFormat {
  private static final long serialVersionUID = 1L;

  @Override
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session,
      StructType schema,
      StructType partitions,
      StructType requested,
      scala.collection.immutable.Seq<Filter> filters,
      Map<String, String> options,
      Configuration conf) {
    return withCheck(
        session,
        schema,
        requested,
        conf,
        super.buildReaderWithPartitionValues(session, schema, partitions, requested, filters, options, conf));
  }

  /** Builds a reader for Spark 3.5, in whose Scala Seq is another type. */
  @SuppressWarnings("unchecked")
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session,
      StructType schema,
      StructType partitions,
      StructType requested,
      scala.collection.Seq<Filter> filters,
      Map<String, String> options,
      Configuration conf) {
    Object reader =
        Calls.call(
            new OrcFileFormat(), "buildReaderWithPartitionValues", session, schema, partitions, requested, filters, options, conf);
    return withCheck(session, schema, requested, conf, (Function1<PartitionedFile, Iterator<InternalRow>>) reader);
  }

  /** Returns a reader that opens a file once the helper has accepted it. */
  private static Function1<PartitionedFile, Iterator<InternalRow>> withCheck(
      SparkSession session,
      StructType schema,
      StructType requested,
      Configuration conf,
      Function1<PartitionedFile, Iterator<InternalRow>> reader) {
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());
    Broadcast<SerializableConfiguration> sent = context.broadcast(new SerializableConfiguration(conf));
    return (Function1<PartitionedFile, Iterator<InternalRow>> & Serializable) file -> {
      try {
        OrcReadCheck.check(sent.value().value(), file.toPath(), file.urlEncodedPath(), schema, requested);
      } catch (IOException e) {
        throw Refusal.<RuntimeException>raise(e); // a missing file, or a failing file system
      }
      return reader.apply(file);
    };
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof CheckedOrcFormat;
  }

  @Override
  public int hashCode() {
    return CheckedOrcFormat.class.hashCode();
  }
}
