package io.sparkcrypt;

import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * A table's file index without the files that the table's store proves to contain no row for a filter.
 *
 * <p>Two such indexes are equal if they wrap equal indexes: a scan's skipped files follow from its filters, which Spark compares
 * itself. This class is compiled against Scala's collections, as Spark 4 has them; SkipRule does not create one on Spark 3.5.
 */
final class SkippingFileIndex implements FileIndex {
  private final FileIndex whole;
  final FileSkipper skipper;

  SkippingFileIndex(FileIndex whole, FileSkipper skipper) {
    this.whole = whole;
    this.skipper = skipper;
  }

  @Override
  public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    Seq<PartitionDirectory> listed = whole.listFiles(partitionFilters, dataFilters);
    List<Object> kept = skipper.keepFiles(Calls.list(listed), Trees.elements(Expression.class, dataFilters));
    if (kept == null) {
      return listed;
    }
    @SuppressWarnings("unchecked") // the elements are those that were listed, or copies of them
    Seq<PartitionDirectory> fewer = (Seq<PartitionDirectory>) Calls.scalaList(kept);
    return fewer;
  }

  @Override
  public Seq<Path> rootPaths() {
    return whole.rootPaths();
  }

  @Override
  public String[] inputFiles() {
    return whole.inputFiles();
  }

  @Override
  public void refresh() {
    whole.refresh();
  }

  @Override
  public long sizeInBytes() {
    return whole.sizeInBytes();
  }

  @Override
  public StructType partitionSchema() {
    return whole.partitionSchema();
  }

  @Override
  public Option<Object> metadataOpsTimeNs() {
    return whole.metadataOpsTimeNs();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof SkippingFileIndex index && index.whole.equals(whole);
  }

  @Override
  public int hashCode() {
    return whole.hashCode();
  }

  @Override
  public String toString() {
    return "SkippingFileIndex(" + whole + ")";
  }
}
