"""A pyarrow file system for HDFS over WebHDFS, without a JVM."""
