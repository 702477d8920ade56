package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/streams"
)

// RestoreConfig is what may differ from the installation that was copied.
type RestoreConfig struct {
	// Replicas is 1 on a single node and 3 in a cluster. 0 means as it was.
	Replicas int
	// Log gets a line for each stream. Required.
	Log *slog.Logger
}

// Restore brings a backup back to a NATS on which there is no Flightline, and
// none is running: it reads all of the backup first, and refuses it whole with
// ErrArchive or streams.ErrSchema, and a server that has any of the streams with
// ErrNotEmpty. What an error leaves half done it removes again, as it does what an
// interrupted Restore left; so no other may run meanwhile.
func Restore(ctx context.Context, nc *nats.Conn, dir string, cfg RestoreConfig) (Manifest, error) {
	m, err := Verify(ctx, dir)
	if ctx.Err() != nil {
		return m, fmt.Errorf("read the backup: %w", ctx.Err())
	}
	if err != nil {
		return m, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return m, fmt.Errorf("open jetstream: %w", err)
	}
	if err := begin(ctx, js, cfg); err != nil {
		return m, err
	}
	// The bucket without which nothing starts comes last.
	first, last := slices.Clone(m.Streams), []Copy(nil)
	if i := slices.IndexFunc(first, func(c Copy) bool { return c.Name == streams.Bucket(streams.BucketEndpoints) }); i >= 0 {
		first, last = slices.Delete(first, i, i+1), m.Streams[i:i+1]
	}
	for _, copies := range [][]Copy{first, last} {
		if err := restoreStreams(ctx, nc, js, dir, copies, cfg); err != nil {
			return m, errors.Join(err, undo(ctx, js, m.Streams))
		}
	}
	if err := streams.EndRestore(ctx, js); err != nil {
		return m, errors.Join(err, undo(ctx, js, m.Streams))
	}
	return m, nil
}

// restoreStreams restores them in turn, as a server (nats-server 2.15) that restores two at
// once reads its map of streams while it writes it. Beside that it waits for their leaders,
// of which some come after 4 s.
func restoreStreams(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, dir string, copies []Copy, cfg RestoreConfig) error {
	g, waiting := errgroup.WithContext(ctx)
	for _, c := range copies {
		err := waiting.Err() // of one before
		if err == nil {
			err = restoreCopy(ctx, nc, dir, c, cfg.Replicas)
		}
		if err != nil {
			g.Go(func() error { return fmt.Errorf("restore stream %s: %w", c.Name, err) })
			break
		}
		g.Go(func() error {
			later, err := restoreRest(waiting, js, dir, c.Name)
			if err != nil {
				return fmt.Errorf("restore stream %s: %w", c.Name, err)
			}
			cfg.Log.InfoContext(ctx, "stream restored", "stream", c.Name, "messages", c.Messages, "later", later)
			return nil
		})
	}
	return g.Wait()
}

// begin marks the server as one with half a backup. It returns ErrNotEmpty if it has
// streams without that mark; those with it are what an interrupted Restore left, and removed.
func begin(ctx context.Context, js jetstream.JetStream, cfg RestoreConfig) error {
	there, err := ourStreams(ctx, js.Conn())
	if err != nil {
		return err
	}
	switch err := streams.CheckRestored(ctx, js); {
	case errors.Is(err, streams.ErrRestoring):
		cfg.Log.WarnContext(ctx, "a restore was interrupted here: what it left is removed", "streams", len(there))
		if left := remove(ctx, js, there); len(left) > 0 {
			return fmt.Errorf("these streams of an interrupted restore could not be removed: %s", strings.Join(left, ", "))
		}
		return nil
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("this NATS has %s: %w: restore to one on which Flightline has not been started yet", strings.Join(there, ", "), ErrNotEmpty)
	}
	if err := streams.BeginRestore(ctx, js, streams.Config{Replicas: cfg.Replicas}); err != nil {
		return errors.Join(err, undo(ctx, js, nil))
	}
	return nil
}

// remove deletes the streams and returns those that may be left.
func remove(ctx context.Context, js jetstream.JetStream, names []string) (left []string) {
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			left = append(left, name)
		}
	}
	return left
}

// undoTimeout bounds the removal of what was restored after an interrupt, which
// is to end the program within a second.
const undoTimeout = 700 * time.Millisecond

// undo removes the streams that were restored, as there were none before, and then the
// mark. Its error names those that may be left. After an interrupt the mark stays: the
// server may still be making some.
func undo(ctx context.Context, js jetstream.JetStream, done []Copy) error {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	if interrupted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, undoTimeout)
		defer cancel()
	}
	names := make([]string, 0, len(done))
	for _, c := range done {
		names = append(names, c.Name)
	}
	left := remove(ctx, js, names)
	switch {
	case len(left) == 0 && !interrupted:
		return streams.EndRestore(ctx, js)
	case len(left) == 0:
		return errors.New("what is left is removed by the next restore")
	}
	return fmt.Errorf("these streams may be left, the next restore removes them: %s", strings.Join(left, ", "))
}

// restoreCopy makes the stream from the server's copy of it.
func restoreCopy(ctx context.Context, nc *nats.Conn, dir string, c Copy, replicas int) error {
	config, err := withReplicas(c.Config, replicas)
	if err != nil {
		return err
	}
	file, _, err := openPlain(dir, snapshotFile(c.Name))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return restoreSnapshot(ctx, nc, c.Name, described{config, c.State}, file)
}

// restoreRest brings the consumers of a stream that was made, and what was stored while it
// was copied; it returns the number of that.
func restoreRest(ctx context.Context, js jetstream.JetStream, dir, stream string) (int, error) {
	if err := resume(ctx, js, stream); err != nil {
		return 0, err
	}
	rest, _, err := openPlain(dir, laterFile(stream))
	if err != nil {
		return 0, err
	}
	defer rest.Close() //nolint:errcheck // it was only read
	return replay(ctx, js, stream, rest)
}

// withReplicas is the configuration with another number of replicas, all else
// being as the server had it.
func withReplicas(config json.RawMessage, replicas int) (json.RawMessage, error) {
	if replicas == 0 {
		return config, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("%w: config: %w", ErrArchive, err)
	}
	fields["num_replicas"] = json.RawMessage(fmt.Sprint(replicas))
	return json.Marshal(fields)
}

// resume sets the consumers of a restored stream to where they are safe: the
// server copies them after the messages, so they may believe to have handed out
// what is not there yet, or was not acknowledged then. In a work queue each
// message is handed out again, as its record decides what becomes of it;
// elsewhere what comes after the last acknowledgement is.
func resume(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := settled(ctx, js, stream)
	if err != nil {
		return err
	}
	list := s.ListConsumers(ctx)
	var all []*jetstream.ConsumerInfo
	for info := range list.Info() {
		all = append(all, info)
	}
	if err := list.Err(); err != nil {
		return err
	}
	state := s.CachedInfo().State
	for _, info := range all {
		var err error
		switch {
		case info.Config.Durable == "":
			err = drop(ctx, s, info.Name) // its reader is gone
		case s.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy:
			// To delete it and make it again can fail: the server (2.15) may still be
			// writing the file of the first, and takes away that of the second.
			_, err = s.ResetConsumerToSequence(ctx, info.Name, 1)
		default:
			_, err = s.ResetConsumerToSequence(ctx, info.Name, max(1, min(info.AckFloor.Stream, state.LastSeq)+1))
		}
		if err != nil {
			return fmt.Errorf("set consumer %s back: %w", info.Name, err)
		}
	}
	return nil
}

// drop deletes a consumer, which the server may have done by itself since it was
// listed: a consumer that is not durable goes once nobody has used it for a while.
func drop(ctx context.Context, s jetstream.Stream, consumer string) error {
	err := s.DeleteConsumer(ctx, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	return err
}
