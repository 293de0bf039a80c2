// A Java host: streams, channels, transfers and mappings, in several threads.
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.CRC32;

public class Host {
    static void say(String name, byte[] data) {
        CRC32 crc = new CRC32();
        crc.update(data);
        System.out.println(name + " " + data.length + " " + crc.getValue());
    }

    public static void main(String[] args) throws Exception {
        Path path = Path.of(args[0]);
        say("files", Files.readAllBytes(path));
        try (InputStream in = new FileInputStream(path.toFile())) {
            say("stream", in.readAllBytes());
        }
        try (FileChannel in = FileChannel.open(path)) {
            ByteBuffer direct = ByteBuffer.allocateDirect(300000);
            in.read(direct, 131072);
            byte[] bytes = new byte[direct.position()];
            direct.flip().get(bytes);
            say("channel", bytes);
            Path copy = Files.createTempFile("host", null);
            try (FileChannel out = FileChannel.open(copy, StandardOpenOption.WRITE)) {
                System.out.println("transfer " + in.transferTo(65536, 2000000, out));
            }
            say("transfer", Files.readAllBytes(copy));
            Files.delete(copy);
            MappedByteBuffer map = in.map(FileChannel.MapMode.READ_ONLY, 0, in.size()).load();
            byte[] mapped = new byte[map.remaining()];
            map.get(mapped);
            say("map", mapped);
            ExecutorService pool = Executors.newFixedThreadPool(4);
            List<Future<byte[]>> parts = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                int at = i * 250000;
                parts.add(pool.submit(() -> {
                    ByteBuffer b = ByteBuffer.allocate(100000);
                    in.read(b, at);
                    return b.array();
                }));
            }
            for (Future<byte[]> part : parts)
                say("part", part.get());
            pool.shutdown();
        }
    }
}
