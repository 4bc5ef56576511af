"""HDFS over WebHDFS, shown as a pyarrow file system, without a JVM."""
