import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.GroupPrincipal;
import java.nio.file.attribute.UserPrincipal;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system with modes and owners by Java's own calls. Without its native library, which pyspark does
 * not have, Hadoop starts {@code ls} or {@code chmod} for each: forty processes a second in tests.
 */
public final class NioLocalFileSystem extends LocalFileSystem {
    public NioLocalFileSystem() {
        super(new Raw());
    }

    private static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
        }

        @Override
        public FileStatus getFileStatus(Path path) throws IOException {
            return withAttributes(super.getFileStatus(path));
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            FileStatus[] listed = super.listStatus(path);
            for (int at = 0; at < listed.length; at++) {
                if (listed[at].getClass() != FileStatus.class) { // of a single file, which super does not ask here for
                    listed[at] = withAttributes(listed[at]);
                }
            }
            return listed;
        }

        private FileStatus withAttributes(FileStatus found) throws IOException {
            java.nio.file.Path file = pathToFile(found.getPath()).toPath();
            Map<String, Object> unix = Files.readAttributes(file, "unix:mode,owner,group,lastAccessTime");
            return new FileStatus(
                    found.getLen(),
                    found.isDirectory(),
                    found.getReplication(),
                    found.getBlockSize(),
                    found.getModificationTime(),
                    ((FileTime) unix.get("lastAccessTime")).toMillis(),
                    new FsPermission((short) ((int) unix.get("mode") & 01777)),
                    ((UserPrincipal) unix.get("owner")).getName(),
                    ((GroupPrincipal) unix.get("group")).getName(),
                    found.getPath());
        }
    }
}
