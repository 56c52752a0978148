// What Cassandra's own reader finds in commit log segments, as mutation JSON: one object a line.
//
// Arguments: a file of DDL (statements end with ";" at the end of a line, tables have their IDs), then
// segments. System keyspaces are left out. An error of the reader is a line with the member "error".

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.db.ClusteringPrefix;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.commitlog.CommitLogDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogPosition;
import org.apache.cassandra.db.commitlog.CommitLogReadHandler;
import org.apache.cassandra.db.commitlog.CommitLogReader;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.ComplexColumnData;
import org.apache.cassandra.db.rows.RangeTombstoneMarker;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaConstants;
import org.apache.cassandra.schema.SchemaTransformation;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.utils.ByteBufferUtil;

public final class PrintMutations implements CommitLogReadHandler
{
    private static final ObjectMapper JSON = new ObjectMapper();
    private final PrintStream out;

    private PrintMutations(PrintStream out)
    {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception
    {
        DatabaseDescriptor.toolInitialization();
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*(\\n|$)"))
            if (!statement.isBlank())
                execute(statement);
        try (PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8))
        {
            for (int i = 1; i < arguments.length; i++)
                new PrintMutations(out).read(arguments[i]);
        }
        System.exit(0); // Cassandra's own threads would keep it alive.
    }

    private static void execute(String ddl)
    {
        Object prepared = QueryProcessor.parseStatement(ddl).prepare(ClientState.forInternalCalls());
        Schema.instance.transform((SchemaTransformation) prepared);
    }

    private void read(String segment)
    {
        try
        {
            new CommitLogReader().readCommitLogSegment(
                this, new File(segment), CommitLogPosition.NONE, CommitLogReader.ALL_MUTATIONS, false);
        }
        catch (Throwable error) // Whatever it is, the other segments are read too.
        {
            report(error);
        }
    }

    private void report(Throwable error)
    {
        out.println(JSON.createObjectNode().put("error", String.valueOf(error)));
    }

    @Override
    public boolean shouldSkipSegmentOnError(CommitLogReadException error)
    {
        report(error);
        return false;
    }

    @Override
    public void handleUnrecoverableError(CommitLogReadException error)
    {
        report(error);
    }

    @Override
    public void handleMutation(Mutation mutation, int size, int position, CommitLogDescriptor descriptor)
    {
        if (SchemaConstants.isSystemKeyspace(mutation.getKeyspaceName()))
            return;
        ObjectNode line = JSON.createObjectNode();
        line.put("segment", descriptor.id);
        line.put("messaging", descriptor.getMessagingVersion());
        line.put("position", position);
        line.put("size", size);
        line.put("keyspace", mutation.getKeyspaceName());
        line.put("cdc", mutation.trackedByCDC());
        ArrayNode updates = line.putArray("updates");
        for (PartitionUpdate update : mutation.getPartitionUpdates())
            fill(updates.addObject(), update);
        out.println(line);
    }

    private static void fill(ObjectNode node, PartitionUpdate update)
    {
        node.put("table", update.metadata().keyspace + "." + update.metadata().name);
        node.put("id", update.metadata().id.asUUID().toString());
        node.put("key", hex(update.partitionKey().getKey()));
        node.put("token", update.partitionKey().getToken().toString());
        deletion(node, "partition_deletion", update.partitionLevelDeletion());
        try (UnfilteredRowIterator rows = update.unfilteredIterator())
        {
            if (!rows.staticRow().isEmpty())
                row(node.putObject("static"), rows.staticRow());
            ArrayNode items = node.putArray("items");
            while (rows.hasNext())
            {
                Unfiltered item = rows.next();
                if (item.isRow())
                    row(items.addObject(), (Row) item);
                else
                    marker(items.addObject(), (RangeTombstoneMarker) item);
            }
        }
    }

    private static void marker(ObjectNode node, RangeTombstoneMarker marker)
    {
        node.put("marker", marker.clustering().kind().toString());
        values(node.putArray("values"), marker.clustering());
        if (marker.isClose(false))
            deletion(node, "close", marker.closeDeletionTime(false));
        if (marker.isOpen(false))
            deletion(node, "open", marker.openDeletionTime(false));
    }

    private static void row(ObjectNode node, Row row)
    {
        if (row.isStatic())
            node.put("clustering", "static");
        else
            values(node.putArray("clustering"), row.clustering());
        LivenessInfo liveness = row.primaryKeyLivenessInfo();
        if (!liveness.isEmpty())
        {
            ObjectNode reported = node.putObject("liveness").put("ts", liveness.timestamp());
            if (liveness.isExpiring())
                reported.put("ttl", liveness.ttl()).put("ldt", liveness.localExpirationTime());
        }
        deletion(node, "deletion", row.deletion().time());
        ObjectNode columns = node.putObject("columns");
        for (ColumnData data : row)
        {
            ObjectNode column = columns.putObject(data.column().name.toString());
            if (data.column().isSimple())
            {
                cell(column, (Cell<?>) data);
                continue;
            }
            ComplexColumnData complex = (ComplexColumnData) data;
            deletion(column, "deletion", complex.complexDeletion());
            ArrayNode cells = column.putArray("cells");
            for (Cell<?> each : complex)
                cell(cells.addObject(), each);
        }
    }

    private static void cell(ObjectNode node, Cell<?> cell)
    {
        node.put("ts", cell.timestamp());
        if (cell.isExpiring())
            node.put("ttl", cell.ttl());
        if (cell.isExpiring() || cell.isTombstone())
            node.put("ldt", cell.localDeletionTime());
        if (cell.path() != null)
            node.put("path", hex(cell.path().get(0)));
        if (cell.isTombstone())
            node.put("tombstone", true);
        else
            node.put("value", hex(cell.buffer()));
    }

    private static void deletion(ObjectNode node, String member, DeletionTime deletion)
    {
        if (!deletion.isLive())
            node.putObject(member).put("ts", deletion.markedForDeleteAt()).put("ldt", deletion.localDeletionTime());
    }

    private static void values(ArrayNode node, ClusteringPrefix<?> prefix)
    {
        for (int i = 0; i < prefix.size(); i++)
        {
            ByteBuffer value = prefix.bufferAt(i);
            if (value == null)
                node.addNull();
            else
                node.add(hex(value));
        }
    }

    private static String hex(ByteBuffer bytes)
    {
        return ByteBufferUtil.bytesToHex(bytes);
    }
}
