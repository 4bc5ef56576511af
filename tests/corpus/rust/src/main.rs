//! Writes files with arrow-rs's own Parquet writer, whose schemas are Parquet's: `cargo run -- FOLDER`, with Rust 1.85 or
//! later; its lines go to `python -m tests.corpus.manifest`.

use parquet::basic::{Compression, Encoding};
use parquet::data_type::*;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::sync::Arc;

/// The values of one column: of a physical type, with definition and repetition levels.
enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I96(Vec<Int96>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<Vec<u8>>),
    Fixed(Vec<Vec<u8>>),
}

type Column = (Values, Vec<i16>, Vec<i16>);

fn texts(values: &[&str]) -> Values {
    Values::Bytes(values.iter().map(|value| value.as_bytes().to_vec()).collect())
}

fn write(name: &str, odd: &str, schema: &str, columns: &[Column], how: WriterPropertiesBuilder) {
    let file = format!("rust_{name}.parquet");
    println!(
        "{{\"file\": \"{file}\", \"writer\": \"arrow-rs\", \"version\": \"60.1.0\", \"odd\": \"{odd}\"}}"
    );
    let path = format!("{}/{file}", std::env::args().nth(1).unwrap());
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(how.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (values, definitions, repetitions) in columns {
        let mut column = group.next_column().unwrap().expect("a column for each list of values");
        let d = (!definitions.is_empty()).then_some(definitions.as_slice());
        let r = (!repetitions.is_empty()).then_some(repetitions.as_slice());
        match values {
            Values::Bool(v) => column.typed::<BoolType>().write_batch(v, d, r),
            Values::I32(v) => column.typed::<Int32Type>().write_batch(v, d, r),
            Values::I64(v) => column.typed::<Int64Type>().write_batch(v, d, r),
            Values::I96(v) => column.typed::<Int96Type>().write_batch(v, d, r),
            Values::F32(v) => column.typed::<FloatType>().write_batch(v, d, r),
            Values::F64(v) => column.typed::<DoubleType>().write_batch(v, d, r),
            Values::Bytes(v) => {
                let v: Vec<ByteArray> = v.iter().map(|value| ByteArray::from(value.clone())).collect();
                column.typed::<ByteArrayType>().write_batch(&v, d, r)
            }
            Values::Fixed(v) => {
                let v: Vec<FixedLenByteArray> =
                    v.iter().map(|value| FixedLenByteArray::from(ByteArray::from(value.clone()))).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&v, d, r)
            }
        }
        .unwrap();
        column.close().unwrap();
    }
    assert!(group.next_column().unwrap().is_none(), "{name} lacks values of a column");
    group.close().unwrap();
    writer.close().unwrap();
}

fn plain() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::SNAPPY)
}

fn main() {
    let ids = || (Values::I64(vec![1, 2, 3]), vec![], vec![]);
    let flat = |values| (values, vec![1, 0, 1], vec![]);
    let lists = || (texts(&["a", "b", "c"]), vec![1, 1, 0, 1], vec![0, 1, 0, 0]);
    for (name, how) in [("", plain()), ("_v2", plain().set_writer_version(WriterVersion::PARQUET_2_0))] {
        let odd = if name.is_empty() { "" } else { ", V2 data pages" };
        write(
            &format!("repeated_leaf{name}"),
            &format!("a repeated leaf without LIST{odd}"),
            "message m { required int64 id; repeated binary words (UTF8); }",
            &[ids(), lists()],
            how.clone(),
        );
        write(
            &format!("repeated_group{name}"),
            &format!("a repeated group without LIST{odd}"),
            "message m { required int64 id; repeated group homes { required binary city (UTF8); optional int32 zip; } }",
            &[ids(), lists(), (Values::I32(vec![7, 9]), vec![2, 1, 0, 2], vec![0, 1, 0, 0])],
            how.clone(),
        );
        write(
            &format!("list_two_levels{name}"),
            &format!("a list of two levels{odd}"),
            "message m { required int64 id; optional group words (LIST) { repeated binary array (UTF8); } }",
            &[ids(), (texts(&["a", "b", "c"]), vec![2, 2, 1, 2], vec![0, 1, 0, 0])],
            how.clone(),
        );
        write(
            &format!("booleans{name}"),
            &format!("booleans, of which none is in a dictionary{odd}"),
            "message m { required boolean a; optional boolean b; }",
            &[(Values::Bool(vec![true, false, true]), vec![], vec![]), flat(Values::Bool(vec![false, true]))],
            how.clone(),
        );
    }
    write(
        "list_avro",
        "a list of structs of two levels, as parquet-avro writes it",
        "message m { required int64 id; required group homes (LIST) { repeated group array { required binary city (UTF8); } } }",
        &[ids(), lists()],
        plain(),
    );
    write(
        "list_thrift",
        "a list of two levels, as parquet-thrift writes it",
        "message m { required int64 id; required group words (LIST) { repeated binary words_tuple (UTF8); } }",
        &[ids(), lists()],
        plain(),
    );
    write(
        "list_hive",
        "a list whose groups are called bag and array_element",
        "message m { required int64 id; optional group words (LIST) { repeated group bag { optional binary array_element (UTF8); } } }",
        &[ids(), (texts(&["a", "c"]), vec![3, 2, 1, 3], vec![0, 1, 0, 0])],
        plain(),
    );
    write(
        "list_of_structs_of_one",
        "a list whose element is a struct of one field, without a level of its own",
        "message m { required int64 id; optional group items (LIST) { repeated group item { optional binary only (UTF8); optional int32 other; } } }",
        &[ids(), (texts(&["a", "c"]), vec![3, 2, 1, 3], vec![0, 1, 0, 0]), (Values::I32(vec![1, 2, 3]), vec![3, 3, 1, 3], vec![0, 1, 0, 0])],
        plain(),
    );
    write(
        "map_null_keys",
        "a map whose keys are optional, one null",
        "message m { required int64 id; optional group m (MAP) { repeated group key_value { optional binary key (UTF8); optional int32 value; } } }",
        &[ids(), (texts(&["a", "c"]), vec![3, 2, 1, 3], vec![0, 1, 0, 0]), (Values::I32(vec![1, 2, 3]), vec![3, 3, 1, 3], vec![0, 1, 0, 0])],
        plain(),
    );
    write(
        "map_old",
        "a map as MAP_KEY_VALUE",
        "message m { required int64 id; optional group m (MAP) { repeated group map (MAP_KEY_VALUE) { required binary key (UTF8); optional int32 value; } } }",
        &[ids(), (texts(&["a", "b", "c"]), vec![2, 2, 1, 2], vec![0, 1, 0, 0]), (Values::I32(vec![1, 3]), vec![3, 2, 1, 3], vec![0, 1, 0, 0])],
        plain(),
    );
    write(
        "map_of_nothing",
        "a map of keys alone, which is a set",
        "message m { required int64 id; optional group m (MAP) { repeated group key_value { required binary key (UTF8); } } }",
        &[ids(), (texts(&["a", "b", "c"]), vec![2, 2, 1, 2], vec![0, 1, 0, 0])],
        plain(),
    );
    for (name, odd, kind, values) in [
        ("enum", "ENUM", "binary v (ENUM)", texts(&["RED", "BLUE"])),
        ("json", "JSON", "binary v (JSON)", texts(&["{}", "[1]"])),
        ("bson", "BSON", "binary v (BSON)", Values::Bytes(vec![vec![5, 0, 0, 0, 0]; 2])),
        ("uuid", "UUID", "fixed_len_byte_array(16) v (UUID)", Values::Fixed(vec![vec![7; 16], vec![9; 16]])),
        ("float16", "FLOAT16", "fixed_len_byte_array(2) v (FLOAT16)", Values::Fixed(vec![vec![0, 0x3c], vec![0, 0xbc]])),
        ("interval", "INTERVAL", "fixed_len_byte_array(12) v (INTERVAL)", Values::Fixed(vec![vec![1; 12]; 2])),
        ("int96", "INT96", "int96 v", Values::I96(vec![Int96::from(vec![5, 0, 2_440_588]), Int96::from(vec![0, 0, 2_460_000])])),
        ("int96_far", "INT96 beyond nanoseconds of 64 bits", "int96 v", Values::I96(vec![Int96::from(vec![0, 0, 1_721_426]), Int96::from(vec![0, 0, 5_373_484])])),
        ("uint8", "unsigned integers", "int32 v (UINT_8)", Values::I32(vec![200, 255])),
        ("uint32", "unsigned integers", "int32 v (UINT_32)", Values::I32(vec![-1, 5])),
        ("uint64", "unsigned integers beyond a long", "int64 v (UINT_64)", Values::I64(vec![-1, 5])),
        ("time_millis", "TIME_MILLIS", "int32 v (TIME_MILLIS)", Values::I32(vec![1, 86_399_999])),
        ("time_micros", "TIME_MICROS", "int64 v (TIME_MICROS)", Values::I64(vec![1, 86_399_999_999])),
        ("time_nanos", "TIME in nanoseconds", "int64 v (TIME(NANOS,true))", Values::I64(vec![1, 86_399_999_999_999])),
        ("timestamp_nanos", "TIMESTAMP in nanoseconds", "int64 v (TIMESTAMP(NANOS,true))", Values::I64(vec![1, 1_700_000_000_000_000_001])),
        ("timestamp_local", "TIMESTAMP without time zone", "int64 v (TIMESTAMP(MICROS,false))", Values::I64(vec![1, 1_700_000_000_000_001])),
        ("decimal_bytes", "a decimal in bytes of any length", "binary v (DECIMAL(12,2))", Values::Bytes(vec![vec![1, 44], vec![0xff]])),
        ("decimal_int32", "a decimal in INT32", "int32 v (DECIMAL(9,2))", Values::I32(vec![-5, 12345])),
        ("decimal_int64", "a decimal in INT64", "int64 v (DECIMAL(18,2))", Values::I64(vec![-5, 12345])),
        ("decimal_short", "a small decimal in INT64", "int64 v (DECIMAL(5,2))", Values::I64(vec![-5, 12345])),
        ("decimal_fixed", "a decimal in fixed bytes longer than it needs", "fixed_len_byte_array(16) v (DECIMAL(9,2))", Values::Fixed(vec![vec![0; 16], vec![0xff; 16]])),
        ("binary", "bytes without annotation", "binary v", Values::Bytes(vec![vec![0xff, 0], vec![]])),
        ("fixed", "fixed bytes without annotation", "fixed_len_byte_array(3) v", Values::Fixed(vec![vec![1, 2, 3], vec![0, 0, 0]])),
        ("nan_only", "NaN alone", "double v", Values::F64(vec![f64::NAN, f64::NAN])),
        ("float_zero", "negative zero", "float v", Values::F32(vec![-0.0, 0.0])),
    ] {
        let schema = format!("message m {{ required int64 id; optional {kind}; }}");
        write(name, odd, &schema, &[ids(), flat(values)], plain());
    }
    write(
        "no_paths",
        "column chunks without path_in_schema",
        "message m { required int64 id; optional binary v (UTF8); }",
        &[ids(), flat(texts(&["a", "b"]))],
        plain().set_write_path_in_schema(false),
    );
    write(
        "page_statistics",
        "statistics in the headers of pages",
        "message m { required int64 id; optional binary v (UTF8); }",
        &[ids(), flat(texts(&["a", "b"]))],
        plain().set_statistics_enabled(EnabledStatistics::Page).set_write_page_header_statistics(true),
    );
    write(
        "v2_kept_uncompressed",
        "V2 data pages left uncompressed, since compression did not pay",
        "message m { required int64 id; optional binary v (UTF8); }",
        &[ids(), flat(texts(&["a", "b"]))],
        plain().set_writer_version(WriterVersion::PARQUET_2_0).set_dictionary_enabled(false),
    );
    write(
        "lz4_raw",
        "LZ4_RAW, DELTA_BYTE_ARRAY",
        "message m { required int64 id; optional binary v (UTF8); }",
        &[ids(), flat(texts(&["a long common prefix 1", "a long common prefix 2"]))],
        WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_dictionary_enabled(false)
            .set_column_encoding("v".into(), Encoding::DELTA_BYTE_ARRAY),
    );
    write(
        "lz4",
        "LZ4 as Hadoop frames it",
        "message m { required int64 id; optional binary v (UTF8); }",
        &[ids(), flat(texts(&["a long common prefix 1", "a long common prefix 2"]))],
        WriterProperties::builder().set_compression(Compression::LZ4),
    );
    write(
        "empty_group_schema",
        "nested groups, each of one field, all optional",
        "message m { optional group a { optional group b { optional group c { optional int32 d; } } } }",
        &[(Values::I32(vec![7]), vec![0, 1, 2, 3, 4], vec![])],
        plain(),
    );
    let deep = 60;
    let schema = format!("message m {{ {} optional int32 v; {} }}", "optional group g { ".repeat(deep), "}".repeat(deep));
    write(
        "very_deep",
        "60 groups within each other",
        &schema,
        &[(Values::I32(vec![7]), vec![deep as i16 + 1, 3, 0], vec![])],
        plain(),
    );
}
