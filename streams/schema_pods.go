package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
)

// moveOwnersPods moves the pods of workers that no driver runs from BucketPods,
// where workers wrote until schema 2, to BucketWorkerPods. Workers of that
// schema go on writing there: readers look into both.
func moveOwnersPods(ctx context.Context, js jetstream.JetStream, c Config) error {
	from, err := js.KeyValue(ctx, BucketPods)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", BucketPods, err)
	}
	if err := ensureStream(ctx, js, agingConfig(c, BucketWorkerPods)); err != nil {
		return err
	}
	to, err := js.KeyValue(ctx, BucketWorkerPods)
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", BucketWorkerPods, err)
	}
	all, err := bus.Bind(js.Conn()).LastOfEach(ctx, Bucket(BucketPods), KeySubject(BucketPods, ">"))
	if err != nil {
		return fmt.Errorf("list bucket %s: %w", BucketPods, err)
	}
	for _, old := range all {
		id := strings.TrimPrefix(old.Subject, KeySubject(BucketPods, ""))
		if err := moveOwnersPod(ctx, from, to, id, old); err != nil {
			return fmt.Errorf("move pod %s: %w", id, err)
		}
	}
	return nil
}

// moveOwnersPod moves one pod, unless a driver runs it. A pod that changes
// meanwhile, or is there already, stays as it is.
func moveOwnersPod(ctx context.Context, from, to jetstream.KeyValue, id string, old *bus.Message) error {
	var p struct {
		Endpoint string `json:"endpoint"`
		Driver   string `json:"driver"`
	}
	if json.Unmarshal(old.Data, &p) != nil || p.Driver != "" || p.Endpoint == "" {
		return nil //nolint:nilerr // what cannot be read is shown, and removed, as before
	}
	if _, err := to.Create(ctx, p.Endpoint+"."+id, old.Data); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	err := from.Purge(ctx, id, jetstream.LastRevision(old.Seq))
	if bus.IsConflict(err) {
		return nil
	}
	return err
}
