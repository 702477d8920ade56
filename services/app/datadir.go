package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"flightline/services/cli"
	"flightline/shared/client"
	"flightline/shared/disk"
	"flightline/shared/registry"
	"flightline/shared/tlsconfig"
)

// storeDir is where NATS keeps its streams, in the data folder.
const storeDir = "jetstream"

// dataDir is the data folder, and what dev.json in it says about us. The file
// stays when dev stops, without the addresses: it keeps the secrets.
type dataDir struct {
	cli.Running
	dir string
	// replaced is the API key of the last start if this one has another.
	replaced string
}

// openDataDir makes the folder and reads its secrets; those it lacks are made up.
// It leaves nothing behind yet: another dev may own the folder.
func openDataDir(cfg Config) (*dataDir, error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if err := noLinks(cfg.Data); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	noHardLinks := disk.CheckHardLinks(cfg.Data)
	kept, err := cli.ReadRunning(cfg.Data)
	if err != nil && !errors.Is(err, cli.ErrNotRunning) {
		return nil, err
	}
	if cfg.Sync == syncGroup && noHardLinks != nil {
		return nil, fmt.Errorf("--sync group needs hard links in %s, use auto or always: %w", cfg.Data, noHardLinks)
	}
	d := &dataDir{dir: cfg.Data, Running: cli.Running{
		APIKey:         cmp.Or(cfg.APIKey, kept.APIKey, "fl_"+rand.Text()),
		NATSUser:       cmp.Or(kept.NATSUser, "flightline"),
		NATSPassword:   cmp.Or(kept.NATSPassword, rand.Text()),
		EventsUser:     cmp.Or(kept.EventsUser, "events"),
		EventsPassword: cmp.Or(kept.EventsPassword, rand.Text()),
		NATSURL:        kept.NATSURL, // of the last start
		Sync:           syncOn(cfg.Sync, noHardLinks == nil),
		PID:            os.Getpid(),
	}}
	if cfg.TLSCert != "" {
		if d.TLSCert, err = filepath.Abs(cfg.TLSCert); err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
	}
	if kept.APIKey != d.APIKey {
		d.replaced = kept.APIKey
	}
	return d, nil
}

// noLinks refuses a data folder in which a file of ours, or one of the store, is a
// link, a pipe or a device: it leads to what is not ours. The folder itself may be
// a link; what pods leave in theirs is not looked at.
func noLinks(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := plain(filepath.Join(data, e.Name()), e); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(filepath.Join(data, storeDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return plain(path, e)
	})
	if errors.Is(err, fs.ErrNotExist) { // the first start
		return nil
	}
	return err
}

func plain(path string, e fs.DirEntry) error {
	switch mode := e.Type(); {
	case mode.IsRegular(), mode.IsDir():
		return nil
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link, want a plain file or folder", path)
	default:
		return fmt.Errorf("%s is a %v, want a plain file or folder", path, mode)
	}
}

// client is ours, as an administrator's; it believes what we show.
func (d *dataDir) client(version string) (*client.Client, error) {
	believed, err := tlsconfig.Client{CA: d.TLSCert}.Config()
	if err != nil {
		return nil, err
	}
	return client.New(d.URL, d.APIKey, client.WithTLS(believed), client.WithUserAgent("flightline-dev/"+version))
}

// replaceKey has the API key of the last start open nothing any more, if this one has another,
// and then keeps ours, which is not put in yet: after a crash at any moment the keys that open
// something are known to the next start. durable waits for what was written to the keys.
func (d *dataDir) replaceKey(ctx context.Context, keys *registry.Keys, durable func() error) error {
	if d.replaced == "" {
		return nil
	}
	if err := revoke(ctx, keys, d.replaced); err != nil {
		return err
	}
	if err := durable(); err != nil {
		return err
	}
	return d.Announce(d.dir) // without an address yet
}

func revoke(ctx context.Context, keys *registry.Keys, plain string) error {
	key, err := keys.Check(ctx, plain)
	if errors.Is(err, registry.ErrUnauthorized) {
		return nil
	}
	if err != nil {
		return err
	}
	return keys.Revoke(ctx, key.ID)
}

// close lets nobody look for us any more.
func (d *dataDir) close() error {
	d.URL, d.MetricsURL, d.PID = "", "", 0
	return d.Announce(d.dir)
}

// administrator is the name of the key that putAdminKey puts in.
const administrator = "administrator"

// putAdminKey puts the administrator's key in, unless it is "". A key that was made with fewer
// scopes stays as it is: clients have their key in the same variable.
func putAdminKey(ctx context.Context, reg *registry.Registry, key string) error {
	if key == "" {
		return nil
	}
	old, err := reg.Keys.Check(ctx, key)
	if err != nil && !errors.Is(err, registry.ErrUnauthorized) {
		return err
	}
	all := old.Allows(registry.AllEndpoints, registry.Admin) && old.Allows("", registry.Control)
	if err == nil && old.Name != administrator && !all {
		return &cli.UsageError{Err: fmt.Errorf("the administrator's key: it is the key %s %q, which may do only %v; give another one", old.ID, old.Name, old.Scopes)}
	}
	_, err = reg.Keys.Put(ctx, key, registry.KeySpec{Name: administrator, Scopes: registry.AllScopes()})
	if errors.Is(err, registry.ErrInvalid) {
		return &cli.UsageError{Err: fmt.Errorf("the administrator's key: %w", err)}
	}
	return err
}
