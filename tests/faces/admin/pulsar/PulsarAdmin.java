// Pulsar's own command line, for many commands in one JVM: each line of stdin has the words of one, separated by tabs.
// Prints a line with the exit code and the number of bytes, then what the command printed.

package org.apache.pulsar.admin.cli;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

public class PulsarAdmin {
    public static void main(String[] arguments) throws Exception {
        PrintStream stdout = System.out;
        PulsarAdminTool tool = new PulsarAdminTool(new Properties());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream here = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(here);
            tool.commander.setOut(new PrintWriter(here, true));
            tool.commander.setErr(new PrintWriter(here, true));
            boolean done = tool.run(line.split("\t", -1));
            here.flush();
            stdout.println((done ? 0 : 1) + " " + printed.size());
            printed.writeTo(stdout);
            stdout.flush();
        }
        System.exit(0);  // the clients' threads do not end by themselves
    }
}
