import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.exec.Utilities;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatchCtx;
import org.apache.hadoop.hive.ql.io.IOConstants;
import org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat;
import org.apache.hadoop.hive.ql.plan.MapWork;
import org.apache.hadoop.hive.serde2.ColumnProjectionUtils;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.StructObjectInspector;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.io.ArrayWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapred.FileSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;

/** Hive's two readers of Parquet files, set up as its tasks do for a query of some columns of a table. */
final class ParquetHive {
  private static final String COLUMNS = "id,email,salary";
  private static final String TYPES = "bigint:string:int";

  private ParquetHive() {}

  private static JobConf query(Configuration conf, String columns) {
    JobConf job = new JobConf(conf);
    job.set(IOConstants.COLUMNS, COLUMNS);
    job.set(IOConstants.COLUMNS_TYPES, TYPES);
    List<Integer> wanted = new ArrayList<>();
    for (String column : columns.split(",")) {
      wanted.add(Arrays.asList(COLUMNS.split(",")).indexOf(column));
    }
    ColumnProjectionUtils.appendReadColumns(job, wanted, List.of(columns.split(",")), List.of(), false);
    return job;
  }

  private static FileSplit whole(JobConf job, Path file) throws Exception {
    return new FileSplit(file, 0, file.getFileSystem(job).getFileStatus(file).getLen(), new String[0]);
  }

  /** Reads rows of columns, whose names are apart by commas; columns that are not asked for are null. */
  static final class Rows implements OutsideReads.Reader {
    @Override
    public String read(Configuration conf, Path file, String columns) throws Exception {
      JobConf job = query(conf, columns);
      RecordReader<NullWritable, ArrayWritable> reader =
          new MapredParquetInputFormat().getRecordReader(whole(job, file), job, Reporter.NULL);
      List<String> rows = new ArrayList<>();
      try (reader) {
        NullWritable key = reader.createKey();
        for (ArrayWritable row = reader.createValue(); reader.next(key, row); ) {
          List<String> values = new ArrayList<>();
          for (Writable value : row.get()) {
            values.add(String.valueOf(value));
          }
          rows.add(String.join(" ", values));
        }
      }
      return String.join(", ", rows);
    }
  }

  /** Reads batches, as Hive does unless it is told otherwise; returns the number of their rows. */
  static final class Batches implements OutsideReads.Reader {
    @Override
    public String read(Configuration conf, Path file, String columns) throws Exception {
      JobConf job = query(conf, columns);
      List<TypeInfo> types = TypeInfoUtils.getTypeInfosFromTypeString(TYPES);
      StructObjectInspector rows =
          ObjectInspectorFactory.getStandardStructObjectInspector(
              List.of(COLUMNS.split(",")), types.stream().map(TypeInfoUtils::getStandardWritableObjectInspectorFromTypeInfo).toList());
      VectorizedRowBatchCtx context = new VectorizedRowBatchCtx();
      context.init(rows, new String[0]);
      MapWork work = new MapWork();
      work.setVectorMode(true);
      work.setVectorizedRowBatchCtx(context);
      job.set("hive.exec.plan", "file:///plan"); // only a name: the plan is kept in memory
      job.setBoolean("VECTOR_MODE", true);
      Utilities.setMapWork(job, work);
      return batches(new MapredParquetInputFormat().getRecordReader(whole(job, file), job, Reporter.NULL));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static String batches(RecordReader reader) throws Exception {
      int found = 0;
      Object key = reader.createKey();
      Object batch = reader.createValue();
      while (reader.next(key, batch)) {
        found += ((VectorizedRowBatch) batch).size;
      }
      reader.close();
      return String.valueOf(found);
    }
  }
}
