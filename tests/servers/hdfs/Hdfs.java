import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/** A name node and a data node in one process, on loopback: Hdfs DIRECTORY PORT, and the four ports after it. */
public class Hdfs {
    private static final int WAIT_MS = 20;

    public static void main(String[] arguments) throws Exception {
        String directory = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        Configuration settings = new Configuration();
        String here = "127.0.0.1:";
        settings.set("fs.defaultFS", "hdfs://" + here + port);
        settings.set("dfs.namenode.name.dir", new File(directory, "name").toURI().toString());
        settings.set("dfs.datanode.data.dir", new File(directory, "data").toURI().toString());
        settings.set("dfs.namenode.http-address", here + (port + 1));
        settings.set("dfs.datanode.http.address", here + (port + 2));
        settings.set("dfs.datanode.address", here + (port + 3));
        settings.set("dfs.datanode.ipc.address", here + (port + 4));
        settings.set("dfs.datanode.hostname", "127.0.0.1");
        settings.set("dfs.replication", "1");
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.namenode.safemode.extension", "0");
        // A file is complete once its data node has reported the last block; a client that asks earlier waits 400 ms.
        settings.set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "2");
        // Each try waits twice as long: the usual 5 end after 62 ms, too soon for a busy machine; these after 8 s.
        settings.set("dfs.client.block.write.locateFollowingBlock.retries", "12");
        DefaultMetricsSystem.setMiniClusterMode(true);  // formatting registers some sources, and the start once more
        boolean isNew = new File(directory, "name").mkdirs();
        if (isNew) NameNode.format(settings);
        NameNode name = NameNode.createNameNode(new String[0], settings);
        DataNode.createDataNode(new String[0], settings);
        while (name.getNamesystem().getNumLiveDataNodes() == 0 || name.isInSafeMode()) Thread.sleep(WAIT_MS);
        System.out.println("http://" + here + (port + 1) + " hdfs://" + here + port);
        while (System.in.read() >= 0) {}  // the starter's end is ours
        Runtime.getRuntime().halt(0);
    }
}
