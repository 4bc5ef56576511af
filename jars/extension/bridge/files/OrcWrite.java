package io.sparkcrypt;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.orc.OrcConf;
import org.apache.orc.TypeDescription;
import org.apache.spark.sql.execution.datasources.orc.OrcUtils;
import org.apache.spark.sql.types.DataType;
import org.slf4j.Logger;

/**
 * The encryption of one ORC file that Spark writes, set in the configuration of its writer.
 *
 * <p>ORC's writer has no notion of tags, so a rule adds the schema of the written columns to the options (TableOptionsRule), and the
 * commit protocol calls this class before each file is opened. Other settings of ORC's encryption are removed.
 */
final class OrcWrite {
  static final String ENCRYPT = "orc.encrypt";
  /** A column that no file has, so a writer that was opened without preparation fails and writes nothing in clear. */
  static final String NOT_PREPARED = "none:not.prepared.by.sparkcrypt";
  static final String MASK = "orc.mask";
  static final String BLOOM_COLUMNS = "orc.bloom.filter.columns";
  private static final Logger LOG = CleanLog.of(OrcWrite.class);
  /** The identity, in Base64, that binds local keys of the file that this thread opens next: ORC does not name the file. */
  private static final ThreadLocal<String> IDENTITY = new ThreadLocal<>();

  private OrcWrite() {}

  /** Returns whether a file format is ORC, Spark's own or Hive's. */
  static boolean isOrc(Object fileFormat) {
    return isSparksOrc(fileFormat) || fileFormat.getClass().getSimpleName().equals("OrcFileFormat");
  }

  /** Returns the identity that binds local keys of the file that this thread writes; null if the file was not prepared. */
  static String identity() {
    return IDENTITY.get();
  }

  /**
   * Refuses a write by a writer that encrypts nothing, if one of its columns must be encrypted.
   *
   * @param request a request resolve_orc_write, with the folder, and properties of the session and of the table that is written to
   * @param schema the written columns, as JSON
   */
  static void refuseClear(ObjectNode request, String schema) {
    JsonNode answer = Helper.ask(request.put("schema", schema));
    if (Wire.requireField(answer, "encrypt").asBoolean(true)) {
      throw Refusal.of(
          "PlanError",
          "columns " + String.join(", ", Wire.texts(Wire.requireField(answer, "columns"))) + " of ORC files are to be encrypted, and would be "
              + "in clear: this write is one by Hive's own writer, or by another commit protocol than sparkcrypt's; leave "
              + "spark.sql.orc.impl at native, spark.sql.hive.convertMetastoreOrc and its like at true, and the commit protocols as "
              + "sparkcrypt.configure sets them");
    }
  }

  /** Returns whether a file format is Spark's own ORC: Hive's has the same short name, and its writer encrypts nothing. */
  static boolean isSparksOrc(Object fileFormat) {
    return fileFormat.getClass().getName().equals("org.apache.spark.sql.execution.datasources.orc.OrcFileFormat")
        || fileFormat instanceof CheckedOrcFormat;
  }

  /**
   * Prepares the configuration for the file that is opened next; does nothing for other formats.
   *
   * @param conf the task's configuration
   * @param temporary the path that the file is written to
   * @param target the path that it will be moved to, or null if its own path shows it
   * @throws RuntimeException the file may not be written like this
   */
  static void prepare(Configuration conf, String temporary, String target) {
    IDENTITY.remove();
    String schema = conf.get(Names.ORC_SCHEMA);
    if (schema == null) {
      return;
    }
    ObjectNode request =
        new SessionConf(conf).request("resolve_orc_write", new Path(temporary)).put("target", target).put("schema", schema);
    ((ObjectNode) request.get("properties")).remove(Names.ORC_SCHEMA);
    JsonNode answer = Helper.ask(request);
    conf.unset(MASK);
    conf.unset(ENCRYPT);
    if (Wire.requireField(answer, "encrypt").asBoolean(true)) {
      IDENTITY.set(Wire.requireField(answer, "file_identity").asText());
      conf.set(ENCRYPT, Wire.requireField(answer, "orc_encrypt").asText());
      conf.set(MASK, Wire.requireField(answer, "orc_mask").asText());
      conf.set(Names.ORC_KEY_PROVIDER, OrcKeyProvider.kind(conf));
      removeBloomFilters(conf, Wire.requireField(answer, "columns"), schema, temporary);
    }
  }

  /**
   * Removes Bloom filters of encrypted columns: ORC writes them in clear, where anybody can probe for a value.
   *
   * <p>ORC itself says which columns the setting means, before and after.
   */
  private static void removeBloomFilters(Configuration conf, JsonNode encrypted, String schema, String file) {
    String wanted = OrcConf.BLOOM_FILTER_COLUMNS.getString(conf);
    TypeDescription type = TypeDescription.fromString(OrcUtils.getOrcSchemaString(DataType.fromJson(schema)));
    BitSet hidden = new BitSet();
    for (String name : Wire.texts(encrypted)) {
      TypeDescription column = type.findSubtype(name);
      hidden.set(column.getId(), column.getMaximumId() + 1);
    }
    BitSet meant = columnsOf(wanted, type);
    if (!meant.intersects(hidden)) {
      return;
    }
    List<String> kept = new ArrayList<>();
    for (TypeDescription column : type.getChildren()) {
      boolean isHidden = hidden.get(column.getId(), column.getMaximumId() + 1).cardinality() > 0;
      if (meant.get(column.getId()) && !isHidden) {
        kept.add(column.getFullFieldName());
      }
    }
    String left = String.join(",", kept);
    conf.set(BLOOM_COLUMNS, columnsOf(left, type).intersects(hidden) ? "" : left);
    LOG.warn("{} gets no Bloom filter of its encrypted columns: it would be in clear; {} was {}", file, BLOOM_COLUMNS, wanted);
  }

  /** Returns the numbers of the columns that get a Bloom filter by a setting. */
  private static BitSet columnsOf(String setting, TypeDescription type) {
    boolean[] included = org.apache.orc.OrcUtils.includeColumns(setting, type);
    return IntStream.range(0, included.length).filter(id -> included[id]).collect(BitSet::new, BitSet::set, BitSet::or);
  }
}
