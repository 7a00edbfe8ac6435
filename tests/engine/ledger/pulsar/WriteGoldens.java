// Writes ledgers with Pulsar's own classes, as its offloader puts them into a blob store, to directories of files.
//
// Maven coordinates (Java 17; versions of everything else from the BOM org.apache.pulsar:pulsar:4.0.8):
//   org.apache.pulsar:tiered-storage-jcloud:4.0.8, org.apache.pulsar:managed-ledger:4.0.8,
//   org.apache.pulsar:pulsar-client-original:4.0.8, org.apache.pulsar:pulsar-client-messagecrypto-bc:4.0.8
//   Exclude org.apache.pulsar:jetcd-core-shaded and org.apache.pulsar:pulsar-opentelemetry from each: their jars of
//   this version are not published, and nothing here needs them.
//
// Usage: java -cp CLASSPATH WriteGoldens DIR

import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;
import org.apache.bookkeeper.net.BookieId;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;
import org.apache.pulsar.common.api.proto.BrokerEntryMetadata;
import org.apache.pulsar.common.api.proto.CompressionType;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.api.raw.MessageParser;
import org.apache.pulsar.common.api.raw.RawMessage;
import org.apache.pulsar.common.compression.CompressionCodecProvider;
import org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor;
import org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor;
import org.apache.pulsar.common.intercept.BrokerEntryMetadataInterceptor;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.common.protocol.Commands.ChecksumType;
import org.apache.pulsar.common.protocol.Markers;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.domain.Blob;
import org.jclouds.blobstore.domain.StorageMetadata;

public final class WriteGoldens {
    static final int MIB = 1 << 20;
    static final ObjectMapper JSON = new ObjectMapper();
    static final OrderedScheduler ONE_THREAD =
            OrderedScheduler.newSchedulerBuilder().numThreads(1).name("offload").build();
    static final Random RANDOM = new Random(17);

    public static void main(String[] args) {
        Path dir = Path.of(args[0]);
        try {
            writeWhole(dir.resolve("whole"));
            writeLost(dir.resolve("lost"));
            writeStreaming(dir.resolve("streaming"));
            writeOverfull(dir.resolve("overfull"));
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);  // Pulsar's threads would keep the program
        }
    }

    /** Ledgers that lose nothing. */
    static void writeWhole(Path dir) throws Exception {
        Store store = new Store();
        store.offload(1, 64 * MIB, bytes(5));
        store.offload(2, 64 * MIB, bytes(0, 1, 0, 0, 7, 0));
        store.offload(3, 180, bytes(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 40, 0, 0));
        store.offload(4, 400, paddings(400, 40));
        store.offload(5, 1000, bytes(RANDOM.ints(250, 0, 40).toArray()));
        store.offload(6, 300, bytes(160, 160, 160));
        store.offload(7, 256, bytes(10, 20, 90, 40, 0, 60), WriteGoldens::everyField);
        store.offload(8, 2048, new Messages().all());
        store.offload(Long.MAX_VALUE, 64 * MIB, bytes(9, 9));
        store.dump(dir);
        List<String> lines = new ArrayList<>();
        for (int id = 0; id < store.ledgers.get(8L).size(); id++) {
            lines.add(JSON.writeValueAsString(Messages.asPulsarReadsIt(8, id, store.ledgers.get(8L).get(id))));
        }
        Files.write(Path.of(dir + ".messages"), lines);
    }

    /**
     * Ledgers with an entry that fits into no block: Pulsar drops it with all that follow, and reports success.
     * When it is the first entry, the offload fails.
     */
    static void writeLost(Path dir) throws Exception {
        Store store = new Store();
        store.offload(11, 300, bytes(50, 60, 400, 70, 80));
        store.offload(12, 300, bytes(160, 400));
        store.offload(13, 300, bytes(50, 60, 161));
        store.dump(dir);
    }

    /** The streaming form. Blocks that are more than full are right only when their first entry is empty. */
    static void writeStreaming(Path dir) throws Exception {
        Store store = new Store();
        store.stream(300, 21, 0, List.of(
                Map.entry(21L, bytes(0, 100, 100, 150, 0, 100, 100, 100, 50, 20, 30)), Map.entry(22L, bytes(5, 0, 7))));
        store.stream(300, 22, 3, List.of(
                Map.entry(22L, bytes(50, 60, 0, 1)), Map.entry(23L, bytes(0)), Map.entry(24L, bytes(128, 8))));
        store.dump(dir);
    }

    /** The streaming form with blocks that are more than full: their lengths are short by their first entry. */
    static void writeOverfull(Path dir) throws Exception {
        Store store = new Store();
        store.stream(500, 31, 0, List.of(Map.entry(31L, bytes(100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100))));
        store.stream(200, 32, 0, List.of(Map.entry(32L, bytes(60, 90, 30))));
        store.dump(dir);
    }

    static LedgerMetadataBuilder oneBookie(LedgerMetadataBuilder meta) {
        return meta.withEnsembleSize(1).withWriteQuorumSize(1).withAckQuorumSize(1).withDigestType(DigestType.CRC32)
                .withPassword(new byte[0]).newEnsembleEntry(0, List.of(BookieId.parse("b1:3181")));
    }

    static LedgerMetadataBuilder everyField(LedgerMetadataBuilder meta) {
        BookieId second = BookieId.parse("b2:3181");
        BookieId third = BookieId.parse("b3:3181");
        Map<String, byte[]> custom = new TreeMap<>();
        custom.put("application", "pulsar".getBytes());
        custom.put("component", "managed-ledger".getBytes());
        custom.put("pulsar/managed-ledger", "public/default/persistent/topic".getBytes());
        custom.put("\u00fc", new byte[] {0, (byte) 0xff});
        return meta.withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2).withDigestType(DigestType.CRC32C)
                .newEnsembleEntry(0, List.of(BookieId.parse("b1:3181"), second, third))
                .newEnsembleEntry(3, List.of(BookieId.parse("b4:3181"), second, third))
                .withPassword("secret".getBytes()).withCustomMetadata(custom)
                .withCreationTime(1_700_000_000_000L).storingCreationTime(true);
    }

    static List<byte[]> bytes(int... lengths) {
        List<byte[]> entries = new ArrayList<>();
        for (int length : lengths) {
            byte[] entry = new byte[length];
            RANDOM.nextBytes(entry);
            entries.add(entry);
        }
        return entries;
    }

    /** Entries for blocks that end with 0, 1, 2 ... bytes of padding. */
    static List<byte[]> paddings(int blockBytes, int most) {
        List<byte[]> entries = new ArrayList<>();
        for (int padding = 0; padding <= most; padding++) {
            entries.addAll(bytes(50, blockBytes - 128 - 12 - 50 - 12 - padding));
        }
        return entries;
    }

    /** A blob store in memory, and the ledgers that Pulsar's offloader put into it. */
    static final class Store {
        static final String BUCKET = "golden";
        final BlobStore blobs = configuration(Map.of()).getProvider().getBlobStore(configuration(Map.of()));
        final Map<Long, List<byte[]>> ledgers = new TreeMap<>();

        Store() {
            blobs.createContainerInLocation(null, BUCKET);
        }

        TieredStorageConfiguration configuration(Map<String, String> more) {
            Map<String, String> all = new LinkedHashMap<>(more);
            all.put("managedLedgerOffloadDriver", "transient");
            all.put("managedLedgerOffloadBucket", BUCKET);
            return new TieredStorageConfiguration(all) {
                @Override
                public BlobStore getBlobStore() {
                    return blobs;
                }
            };
        }

        BlobStoreManagedLedgerOffloader offloader(Map<String, String> configuration) throws IOException {
            Map<String, String> metadata = Map.of(  // as the broker gives them
                    LedgerOffloader.METADATA_SOFTWARE_VERSION_KEY.toLowerCase(), "4.0.8",
                    LedgerOffloader.METADATA_SOFTWARE_GITSHA_KEY.toLowerCase(), "0000000",
                    LedgerOffloader.METADATA_PULSAR_CLUSTER_NAME.toLowerCase(), "standalone");
            return BlobStoreManagedLedgerOffloader.create(
                    configuration(configuration), metadata, ONE_THREAD, ONE_THREAD,
                    LedgerOffloaderStats.create(false, false, null, 0), new OffsetsCache());
        }

        void offload(long ledgerId, int maxBlockBytes, List<byte[]> entries) throws Exception {
            offload(ledgerId, maxBlockBytes, entries, WriteGoldens::oneBookie);
        }

        void offload(
                long ledgerId, int maxBlockBytes, List<byte[]> entries, UnaryOperator<LedgerMetadataBuilder> change)
                throws Exception {
            ledgers.put(ledgerId, entries);
            offloader(Map.of("managedLedgerOffloadMaxBlockSizeInBytes", String.valueOf(maxBlockBytes)))
                    .offload(new ClosedLedger(ledgerId, entries, change), uuid(ledgerId),
                            Map.of("ManagedLedgerName", "public/default/persistent/topic"))
                    .get(60, TimeUnit.SECONDS);
        }

        /** One segment of a streaming offload. The offloader's thread waits until it has all entries. */
        void stream(int blockBytes, long ledgerId, long firstEntryId, List<Map.Entry<Long, List<byte[]>>> segment)
                throws Exception {
            BlobStoreManagedLedgerOffloader offloader =
                    offloader(Map.of("managedLedgerOffloadMinBlockSizeInBytes", String.valueOf(blockBytes)));
            CountDownLatch offered = new CountDownLatch(1);
            ONE_THREAD.chooseThread().execute(() -> await(offered));
            LedgerOffloader.OffloadHandle handle = offloader.streamingOffload(
                    managedLedger(), uuid(ledgerId * 100 + firstEntryId), ledgerId, firstEntryId, Map.of()).get();
            for (Map.Entry<Long, List<byte[]>> part : segment) {
                List<byte[]> known = ledgers.computeIfAbsent(part.getKey(), id -> new ArrayList<>());
                for (byte[] entry : part.getValue()) {
                    handle.offerEntry(EntryImpl.create(part.getKey(), known.size(), entry));
                    known.add(entry);
                }
            }
            handle.close();
            offered.countDown();
            handle.getOffloadResultAsync().get(60, TimeUnit.SECONDS);
        }

        /** The answers that the streaming offload needs: what was offered so far is all that the ledger has. */
        ManagedLedger managedLedger() {
            return (ManagedLedger) Proxy.newProxyInstance(
                    getClass().getClassLoader(), new Class<?>[] {ManagedLedger.class},
                    (proxy, method, args) -> switch (method.getName()) {
                        case "getName" -> "public/default/persistent/topic";
                        case "getLedgerInfo" -> CompletableFuture.completedFuture(ledgerInfo((Long) args[0]));
                        default -> throw new UnsupportedOperationException(method.getName());
                    });
        }

        LedgerInfo ledgerInfo(long ledgerId) {
            List<byte[]> entries = ledgers.get(ledgerId);
            LedgerInfo.Builder info = LedgerInfo.newBuilder().setLedgerId(ledgerId);
            if (ledgerId == 24) {  // still open: the offloader fills in the number of entries
                return info.build();
            }
            return info.setEntries(entries.size()).setSize(length(entries)).setTimestamp(1_700_000_000_000L).build();
        }

        /** Every object as a file, its user metadata beside it, and what the ledgers were made of. */
        void dump(Path dir) throws Exception {
            Files.createDirectories(dir);
            for (StorageMetadata found : blobs.list(BUCKET)) {
                Blob blob = blobs.getBlob(BUCKET, found.getName());
                try (InputStream in = blob.getPayload().openStream()) {
                    Files.write(dir.resolve(found.getName()), in.readAllBytes());
                }
                Map<String, String> metadata = new TreeMap<>(blob.getMetadata().getUserMetadata());
                Files.writeString(dir.resolve(found.getName() + ".json"),
                        JSON.writeValueAsString(Map.of("metadata", metadata)) + "\n");
            }
            List<String> lines = new ArrayList<>();
            for (Map.Entry<Long, List<byte[]>> ledger : ledgers.entrySet()) {
                for (int id = 0; id < ledger.getValue().size(); id++) {
                    byte[] entry = ledger.getValue().get(id);
                    lines.add(ledger.getKey() + " " + id + " " + entry.length + " " + sha256(entry));
                }
            }
            Files.write(Path.of(dir + ".entries"), lines);
        }
    }

    static UUID uuid(long number) {
        return UUID.nameUUIDFromBytes(String.valueOf(number).getBytes());
    }

    static long length(List<byte[]> entries) {
        return entries.stream().mapToLong(entry -> entry.length).sum();
    }

    static String sha256(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A closed ledger that is only here. */
    static final class ClosedLedger implements ReadHandle {
        private final List<byte[]> entries;
        private final LedgerMetadata metadata;

        ClosedLedger(long ledgerId, List<byte[]> entries, UnaryOperator<LedgerMetadataBuilder> change) {
            this.entries = entries;
            LedgerMetadataBuilder builder = LedgerMetadataBuilder.create().withId(ledgerId).withClosedState()
                    .withLastEntryId(entries.size() - 1).withLength(length(entries));
            metadata = change.apply(builder).build();
        }

        @Override
        public CompletableFuture<LedgerEntries> readAsync(long first, long last) {
            List<LedgerEntry> found = new ArrayList<>();
            for (long id = first; id <= last; id++) {
                byte[] entry = entries.get((int) id);
                found.add(LedgerEntryImpl.create(getId(), id, entry.length, Unpooled.copiedBuffer(entry)));
            }
            return CompletableFuture.completedFuture(LedgerEntriesImpl.create(found));
        }

        @Override
        public CompletableFuture<LedgerEntries> readUnconfirmedAsync(long first, long last) {
            return readAsync(first, last);
        }

        @Override
        public CompletableFuture<Long> readLastAddConfirmedAsync() {
            return CompletableFuture.completedFuture(getLastAddConfirmed());
        }

        @Override
        public CompletableFuture<Long> tryReadLastAddConfirmedAsync() {
            return readLastAddConfirmedAsync();
        }

        @Override
        public long getLastAddConfirmed() {
            return metadata.getLastEntryId();
        }

        @Override
        public long getLength() {
            return metadata.getLength();
        }

        @Override
        public boolean isClosed() {
            return metadata.isClosed();
        }

        @Override
        public CompletableFuture<LastConfirmedAndEntry> readLastAddConfirmedAndEntryAsync(
                long entryId, long timeoutMs, boolean parallel) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long getId() {
            return metadata.getLedgerId();
        }

        @Override
        public CompletableFuture<Void> closeAsync() {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public LedgerMetadata getLedgerMetadata() {
            return metadata;
        }
    }

    /** Entries with messages, as producers and brokers make them. */
    static final class Messages {
        static final byte[] TEXT = "hello world ".repeat(20).getBytes();
        private final Set<BrokerEntryMetadataInterceptor> broker =
                Set.of(new AppendBrokerTimestampMetadataInterceptor(), new AppendIndexMetadataInterceptor());
        private final List<byte[]> entries = new ArrayList<>();
        private long sequenceId = 0;

        List<byte[]> all() throws Exception {
            add(ChecksumType.Crc32c, metadata(), "one".getBytes());
            add(ChecksumType.None, metadata(), "without a checksum".getBytes());
            add(ChecksumType.Crc32c, metadata(), new byte[0]);
            add(ChecksumType.Crc32c, metadata().setNullValue(true).setPartitionKey("deleted"), new byte[0]);
            add(ChecksumType.Crc32c, metadata(), new byte[] {(byte) 0xff, 0, (byte) 0xfe});
            everyField();
            for (CompressionType type : CompressionType.values()) {
                byte[] packed = compress(type, TEXT);
                add(ChecksumType.Crc32c, compressed(type, TEXT.length), packed);
                byte[] nothing = compress(type, new byte[0]);
                add(ChecksumType.Crc32c, compressed(type, 0), nothing);
                batch(type, "first", "second", "", "hello world hello world hello world");
            }
            batch(CompressionType.NONE, "alone in its batch");
            for (int count : new int[] {1, 3}) {
                String[] payloads = Collections.nCopies(count, "with an index").toArray(new String[0]);
                batch(CompressionType.LZ4, payloads);
                addBroker(count);
            }
            add(ChecksumType.Crc32c, metadata(), "no batch, with an index".getBytes());
            addBroker(1);
            compacted();
            take(Markers.newTxnCommitMarker(7, 5, 6));
            take(Markers.newTxnAbortMarker(8, 5, 6));
            take(Markers.newReplicatedSubscriptionsSnapshotRequest("snapshot", "west"));
            take(Markers.newReplicatedSubscriptionsUpdate("subscription", Map.of()));
            encrypted("secret");
            chunks(CompressionType.NONE);
            chunks(CompressionType.ZSTD);
            return entries;
        }

        MessageMetadata metadata() {
            return new MessageMetadata().setProducerName("standalone-0-1").setSequenceId(sequenceId++)
                    .setPublishTime(1_700_000_000_000L + sequenceId);
        }

        MessageMetadata compressed(CompressionType type, int size) {
            return metadata().setCompression(type).setUncompressedSize(size);
        }

        void add(ChecksumType checksum, MessageMetadata metadata, byte[] payload) {
            take(Commands.serializeMetadataAndPayload(checksum, metadata, Unpooled.wrappedBuffer(payload)));
        }

        void take(ByteBuf entry) {
            entries.add(ByteBufUtil.getBytes(entry));
        }

        /** What the broker puts in front of an entry, for the last one. */
        void addBroker(int messages) {
            ByteBuf last = Unpooled.wrappedBuffer(entries.remove(entries.size() - 1));
            take(Commands.addBrokerEntryMetadata(last, broker, messages));
        }

        void everyField() {
            MessageMetadata all = metadata().setEventTime(1_600_000_000_000L).setPartitionKey("a2V5")
                    .setPartitionKeyB64Encoded(true).setOrderingKey(new byte[] {1, 2, (byte) 0xff})
                    .setSchemaVersion(new byte[] {0, 0, 0, 0, 0, 0, 0, 3}).setDeliverAtTime(1_800_000_000_000L)
                    .setTxnidMostBits(4).setTxnidLeastBits(5).setReplicatedFrom("west").setHighestSequenceId(99)
                    .setUncompressedSize(5);
            all.addProperty().setKey("color").setValue("red");
            all.addProperty().setKey("\u00fcber").setValue("\ud83d\ude00");
            all.addProperty().setKey("empty").setValue("");
            all.addReplicateTo("east");
            add(ChecksumType.Crc32c, all, "gr\u00fcn".getBytes(StandardCharsets.UTF_8));
        }

        static byte[] compress(CompressionType type, byte[] data) {
            ByteBuf direct = Unpooled.directBuffer(Math.max(1, data.length)).writeBytes(data);
            return ByteBufUtil.getBytes(CompressionCodecProvider.getCompressionCodec(type).encode(direct));
        }

        /** A batch as a producer makes it: the metadata of its first message, and each message with its own. */
        void batch(CompressionType type, String... payloads) {
            ByteBuf messages = Unpooled.buffer();
            MessageMetadata first = null;
            for (String payload : payloads) {
                MessageMetadata own = metadata().setPartitionKey("key-" + payload.length())
                        .setEventTime(1000 + sequenceId);
                own.addProperty().setKey("n").setValue(String.valueOf(sequenceId));
                first = first == null ? own : first;
                ByteBuf data = Unpooled.wrappedBuffer(payload.getBytes());
                Commands.serializeSingleMessageInBatchWithPayload(own, data, messages);
            }
            MessageMetadata whole = new MessageMetadata();
            Commands.initBatchMessageMetadata(whole, first);
            whole.setNumMessagesInBatch(payloads.length).setHighestSequenceId(sequenceId - 1);
            byte[] data = ByteBufUtil.getBytes(messages);
            if (type != CompressionType.NONE) {
                whole.setCompression(type);
            }
            add(ChecksumType.Crc32c, whole.setUncompressedSize(data.length), compress(type, data));
        }

        /** A batch of which compaction left one message. */
        void compacted() {
            ByteBuf messages = Unpooled.buffer();
            for (int at = 0; at < 3; at++) {
                SingleMessageMetadata own = new SingleMessageMetadata().setPartitionKey("k" + at)
                        .setSequenceId(sequenceId + at).setCompactedOut(at != 1);
                ByteBuf payload = Unpooled.wrappedBuffer(at == 1 ? "kept".getBytes() : new byte[0]);
                Commands.serializeSingleMessageInBatchWithPayload(own, payload, messages);
            }
            add(ChecksumType.Crc32c, metadata().setNumMessagesInBatch(3), ByteBufUtil.getBytes(messages));
        }

        void encrypted(String text) throws Exception {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            String pem = "-----BEGIN PUBLIC KEY-----\n"
                    + Base64.getMimeEncoder().encodeToString(generator.generateKeyPair().getPublic().getEncoded())
                    + "\n-----END PUBLIC KEY-----\n";
            CryptoKeyReader keys = new CryptoKeyReader() {
                @Override
                public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                    return new EncryptionKeyInfo(pem.getBytes(), Map.of("version", "1"));
                }

                @Override
                public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                    throw new UnsupportedOperationException();
                }
            };
            MessageCryptoBc crypto = new MessageCryptoBc("golden", true);
            crypto.addPublicKeyCipher(Set.of("owner"), keys);
            MessageMetadata metadata = metadata();
            ByteBuffer out = ByteBuffer.allocate(crypto.getMaxOutputSize(text.length()));
            crypto.encrypt(Set.of("owner"), keys, () -> metadata, ByteBuffer.wrap(text.getBytes()), out);
            byte[] payload = new byte[out.remaining()];
            out.get(payload);
            add(ChecksumType.Crc32c, metadata.setUncompressedSize(text.length()), payload);
        }

        /** A message that was compressed and then cut, as a producer does. */
        void chunks(CompressionType type) {
            byte[] text = bytes(150).get(0);
            byte[] data = compress(type, text);
            int size = 60;
            int count = (data.length + size - 1) / size;
            long first = sequenceId;
            for (int at = 0; at < count; at++) {
                MessageMetadata metadata = metadata().setSequenceId(first).setUuid("standalone-0-1-" + first)
                        .setChunkId(at).setNumChunksFromMsg(count).setTotalChunkMsgSize(data.length)
                        .setUncompressedSize(text.length);
                if (type != CompressionType.NONE) {
                    metadata.setCompression(type);
                }
                int end = Math.min(data.length, (at + 1) * size);
                add(ChecksumType.Crc32c, metadata, Arrays.copyOfRange(data, at * size, end));
            }
        }

        /** An entry in the words of Pulsar's own parser, which reads neither encrypted entries nor packed chunks. */
        static Map<String, Object> asPulsarReadsIt(long ledgerId, long entryId, byte[] entry) {
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("entry_id", entryId);
            ByteBuf buffer = Unpooled.directBuffer().writeBytes(entry);
            BrokerEntryMetadata broker = Commands.parseBrokerEntryMetadataIfExist(buffer);
            if (broker != null) {
                said.put("broker_timestamp_ms", broker.getBrokerTimestamp());
                said.put("broker_index", broker.getIndex());
            }
            MessageMetadata metadata = Commands.peekMessageMetadata(buffer, "topic", 0);
            said.put("marker", metadata.hasMarkerType() ? metadata.getMarkerType() : null);
            said.put("batch_size", metadata.hasNumMessagesInBatch() ? metadata.getNumMessagesInBatch() : null);
            said.put("compression", metadata.getCompression().name());
            List<Map<String, Object>> messages = new ArrayList<>();
            try {
                MessageParser.parseMessage(
                        "topic", ledgerId, entryId, buffer, raw -> messages.add(fields(raw)), 5 * MIB);
                said.put("messages", messages);
            } catch (IOException | RuntimeException e) {
                said.put("error", e.getMessage().replaceAll(" org[.].*| topic.*|:.*", ""));
            }
            return said;
        }

        static Map<String, Object> fields(RawMessage raw) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("producer_name", raw.getProducerName());
            fields.put("sequence_id", raw.getSequenceId());
            fields.put("publish_time_ms", raw.getPublishTime());
            fields.put("event_time_ms", raw.getEventTime());
            fields.put("key", raw.getKey().orElse(null));
            fields.put("key_is_base64", raw.hasBase64EncodedKey());
            fields.put("properties", raw.getProperties());
            byte[] schema = raw.getSchemaVersion();
            fields.put("schema_version", schema == null ? null : HexFormat.of().formatHex(schema));
            fields.put("chunk", raw.getNumChunksFromMsg() < 2 ? null
                    : List.of(raw.getUUID(), raw.getChunkId(), raw.getNumChunksFromMsg(), raw.getTotalChunkMsgSize()));
            fields.put("payload", ByteBufUtil.hexDump(raw.getData()));
            return fields;
        }
    }
}
