package registry

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// installationKey is where the id stands, beside what else is never forgotten.
const installationKey = "installation"

// Installation returns the id of the Flightline that this bus is, made when
// somebody first asks and the same ever after, for all processes: "fl-" and 12
// hexadecimal digits. It tells what one Flightline runs on a machine from what
// another runs there. It returns ErrUnavailable.
func Installation(ctx context.Context, js jetstream.JetStream) (string, error) {
	table, err := OpenTable[string](ctx, js, streams.BucketPositions)
	if err != nil {
		return "", err
	}
	id, _, err := table.Get(ctx, installationKey)
	if !errors.Is(err, ErrNotFound) {
		return id, err
	}
	made := "fl-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	_, err = table.Create(ctx, installationKey, made)
	if errors.Is(err, ErrExists) { // somebody else was faster
		made, _, err = table.Get(ctx, installationKey)
	}
	return made, err
}
