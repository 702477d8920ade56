package admin_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/s2"

	"flightline/services/admin"
	"flightline/shared/testenv"
	"flightline/streams"
)

// forged is a backup that somebody changed, with sums that fit.
type forged struct {
	t   *testing.T
	dir string
}

func forge(t *testing.T, good string) *forged {
	t.Helper()
	f := &forged{t: t, dir: filepath.Join(t.TempDir(), "copy")}
	if err := os.CopyFS(f.dir, os.DirFS(good)); err != nil {
		t.Fatal(err)
	}
	return f
}

// manifest changes the manifest, as it is decoded.
func (f *forged) manifest(change func(m, events map[string]any)) {
	f.t.Helper()
	path := filepath.Join(f.dir, "manifest.json")
	data, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		f.t.Fatal(err)
	}
	for _, s := range m["streams"].([]any) {
		if s := s.(map[string]any); s["name"] == streams.Events {
			change(m, s)
		}
	}
	if data, err = json.Marshal(m); err != nil {
		f.t.Fatal(err)
	}
	f.write("manifest.json", data)
}

func (f *forged) write(name string, data []byte) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// archive replaces the copy of EVENTS, and makes the manifest fit it.
func (f *forged) archive(data []byte, messages, size int) {
	f.t.Helper()
	var out bytes.Buffer
	w := s2.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	packed := out.Bytes()
	f.write(streams.Events+".snapshot", packed)
	f.manifest(func(_, events map[string]any) {
		events["bytes"], events["messages"] = len(packed), messages
		events["state"] = json.RawMessage(stateOf(messages, size, 0))
	})
}

func stateOf(messages, size, consumers int) string {
	return fmt.Sprintf(`{"messages":%d,"bytes":%d,"first_seq":1,"last_seq":%d,"consumer_count":%d}`, messages, size, messages, consumers)
}

// sums makes them fit.
func (f *forged) sums() {
	f.t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	var list strings.Builder
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == "SHA256SUMS" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(f.dir, e.Name()))
		if err != nil {
			f.t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&list, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
	}
	f.write("SHA256SUMS", []byte(list.String()))
}

// entries is an archive in the form of NATS: a state, and what follows.
func entries(state string, more ...[]byte) []byte {
	return append(append([]byte("NATSARC1"), item("state.json", 0, "", state)...), bytes.Join(more, nil)...)
}

func item(name string, sequence uint64, header, payload string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(name)))
	b = binary.AppendVarint(b, 1)
	b = binary.AppendUvarint(b, sequence)
	b = binary.AppendUvarint(b, uint64(len(header)))
	b = binary.AppendUvarint(b, uint64(len(payload)))
	return append(append(append(b, name...), header...), payload...)
}

var theEnd = make([]byte, 5)

// tarOf is an archive in the form of NATS servers before 2.15.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// A person who may write to the folder can make sums that fit. What this version
// would not have written is refused by name all the same, and nothing is restored.
func TestAForgedBackupIsRefusedByName(t *testing.T) {
	t.Parallel()
	good, _ := backup(t, applied(t))
	const subject = "events.ep.queued.x.1.0"
	one := func(state string, more ...[]byte) func(*forged) {
		return func(f *forged) { f.archive(entries(state, more...), 1, 100) }
	}
	setting := func(name string, value any) func(*forged) {
		return func(f *forged) {
			f.manifest(func(_, events map[string]any) { events["config"].(map[string]any)[name] = value })
		}
	}
	tape := func(headers ...tar.Header) func(*forged) {
		return func(f *forged) { f.archive(tarOf(t, headers...), 0, 0) }
	}
	later := func(line string) func(*forged) {
		return func(f *forged) {
			f.write(streams.Events+".later", []byte(line))
			f.manifest(func(_, events map[string]any) { events["later"] = 1 })
		}
	}
	state := stateOf(1, 100, 0)
	good1 := item(subject, 1, "", "x")
	watch := func(to string) func(*forged) {
		return one(stateOf(1, 100, 1), item("consumers/c", 0, "", fmt.Sprintf(`{"config":{"name":"c","deliver_subject":%q},"state":{}}`, to)), good1, theEnd)
	}
	for name, tt := range map[string]struct {
		spoil func(*forged)
		want  string
	}{
		"republish":              {setting("republish", map[string]any{"src": "events.>", "dest": "$KV.keys.>"}), "EVENTS: republish is"},
		"a subject":              {setting("subjects", []string{"events.>", "$KV.keys.>"}), `EVENTS: subject "$KV.keys.>"`},
		"no subject":             {setting("subjects", nil), "EVENTS: retention"},
		"a source":               {setting("sources", []map[string]any{{"name": "KV_keys"}}), "EVENTS: sources is"},
		"a mirror":               {setting("mirror", map[string]any{"name": "KV_keys"}), "EVENTS: mirror is"},
		"a transform":            {setting("subject_transform", map[string]any{"src": ">", "dest": "$KV.keys.>"}), "EVENTS: subject_transform is"},
		"in memory":              {setting("storage", "memory"), "EVENTS: retention"},
		"work queue":             {setting("retention", "workqueue"), "EVENTS: retention"},
		"sealed":                 {setting("sealed", true), "EVENTS: sealed is true"},
		"a setting nobody knows": {setting("pipe_to", "/bin/sh"), "EVENTS: pipe_to is /bin/sh"},
		"another name inside":    {setting("name", "KV_keys"), `EVENTS has the configuration of "KV_keys"`},
		"an unknown stream":      {func(f *forged) { f.rename("EVIL") }, `there is no stream "EVIL"`},
		"a partition spelled so": {func(f *forged) { f.rename("KV_records_007") }, `there is no stream "KV_records_007"`},
		"a queue of no endpoint": {func(f *forged) { f.rename("JOBS_a b") }, `there is no stream "JOBS_a b"`},
		"a name with a path":     {func(f *forged) { f.rename("../EVENTS") }, `"../EVENTS" is not in it`},
		"a stream twice": {func(f *forged) {
			f.manifest(func(m, e map[string]any) { m["streams"] = append(m["streams"].([]any), e) })
		}, `"EVENTS" is in it twice`},
		"another size":             {func(f *forged) { f.manifest(func(_, e map[string]any) { e["bytes"] = 1 }) }, "EVENTS.snapshot has"},
		"another state":            {func(f *forged) { f.manifest(func(_, e map[string]any) { e["messages"] = 7 }) }, "EVENTS.snapshot: it has 0 messages"},
		"more later messages":      {func(f *forged) { f.manifest(func(_, e map[string]any) { e["later"] = 7 }) }, "EVENTS.later has 0 messages, want 7"},
		"a later message of keys":  {later(`{"seq":1,"subject":"$KV.keys.x"}`), `EVENTS.later: a message of subject "$KV.keys.x"`},
		"a later request":          {later(`{"seq":1,"subject":"$JS.API.STREAM.PURGE.KV_keys"}`), "EVENTS.later: a message of subject"},
		"a later wildcard":         {later(`{"seq":1,"subject":"events.*"}`), "EVENTS.later: a message of subject"},
		"a message of keys":        {one(state, item("$KV.keys.x", 1, "", "x"), theEnd), `subject "$KV.keys.x", which is none of EVENTS`},
		"a schedule for keys":      {one(state, item(subject, 1, "NATS/1.0\r\nNats-Schedule-Target: $KV.keys.x\r\n\r\n", "x"), theEnd), `scheduled for "$KV.keys.x"`},
		"headers that are none":    {one(state, item(subject, 1, "evil", "x"), theEnd), "message 1"},
		"a message twice":          {one(state, good1, good1, theEnd), "message 1 after 1"},
		"a message behind the end": {one(state, item(subject, 2, "", "x"), theEnd), "message 2 after 0, want one up to 1"},
		"a large message":          {one(state, item(subject, 1, "", strings.Repeat("x", 200)), theEnd), "its manifest has 100 bytes"},
		"something behind the end": {one(state, good1, theEnd, good1), "something follows its end"},
		"no end":                   {one(state, good1), "cut off"},
		"a pushing consumer": {
			one(stateOf(1, 100, 1), item("consumers/c", 0, "", `{"config":{"durable_name":"c","deliver_subject":"$KV.keys.x"},"state":{}}`), good1, theEnd),
			`consumers/c is durable and delivers to "$KV.keys.x"`,
		},
		"a watch that writes a key":     {watch("$KV.keys.x"), `consumers/c delivers to "$KV.keys.x"`},
		"a watch that writes a webhook": {watch("webhooks.ep.x.1"), `consumers/c delivers to "webhooks.ep.x.1"`},
		"too many consumers":            {one(stateOf(1, 100, 1<<30), good1, theEnd), "1073741824 consumers"},
		"a huge entry": {func(f *forged) {
			f.archive(append(entries(state), 22, 2, 1, 0, 255, 255, 255, 255, 255, 255, 127), 1, 100)
		}, "an entry of"},
		"a huge name":        {func(f *forged) { f.archive(append([]byte("NATSARC1"), 255, 255, 255, 255, 255, 127), 1, 100) }, "a name of"},
		"a path upwards":     {tape(tar.Header{Name: "../../etc/cron.d/x", Mode: 0o600}), "NATSARC1"},
		"an absolute path":   {tape(tar.Header{Name: "/etc/cron.d/x", Mode: 0o600}), "NATSARC1"},
		"a link inside":      {tape(tar.Header{Name: "msgs", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), "NATSARC1"},
		"a hard link inside": {tape(tar.Header{Name: "meta.inf", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), "NATSARC1"},
		"a device inside":    {tape(tar.Header{Name: "meta.inf", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}), "NATSARC1"},
		"a sparse file": {func(f *forged) {
			raw := tarOf(t, tar.Header{Name: "msgs/1.blk", Mode: 0o600})
			raw[156] = 'S' // GNU's old form: 8 GB of nothing
			f.archive(raw, 0, 0)
		}, "NATSARC1"},
		"one name twice": {tape(tar.Header{Name: "meta.inf", Mode: 0o600}, tar.Header{Name: "meta.inf", Mode: 0o600}), "NATSARC1"},
		"a bomb":         {func(f *forged) { f.archive(append(entries(state), make([]byte, 64<<20)...), 1, 100) }, "something follows its end"},
		"no archive":     {func(f *forged) { f.archive(nil, 0, 0) }, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forge(t, good)
			f.t = t
			tt.spoil(f)
			f.sums()
			if _, err := admin.Verify(t.Context(), f.dir); !errors.Is(err, admin.ErrArchive) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an ErrArchive with %q", err, tt.want)
			}
		})
	}
}

// A backup that a newer program made is whole, and another program can restore it.
func TestVerifyOfANewerBackupNamesItAndBothSchemas(t *testing.T) {
	t.Parallel()
	good, _ := backup(t, applied(t))
	f := forge(t, good)
	f.manifest(func(m, _ map[string]any) { m["schema"] = streams.Schema + 1 })
	f.sums()
	_, err := admin.Verify(t.Context(), f.dir)
	want := fmt.Sprintf("read the backup in %s: %s: it has %d, this program knows %d", f.dir, streams.ErrSchema, streams.Schema+1, streams.Schema)
	if !errors.Is(err, streams.ErrSchema) || errors.Is(err, admin.ErrArchive) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// rename gives the copy of EVENTS another name.
func (f *forged) rename(name string) {
	f.t.Helper()
	if name == filepath.Base(name) {
		for _, suffix := range []string{".snapshot", ".later"} {
			if err := os.Rename(filepath.Join(f.dir, streams.Events+suffix), filepath.Join(f.dir, name+suffix)); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.manifest(func(_, events map[string]any) { events["name"] = name })
}

// What is no plain file may have no end, or lead out of the folder.
func TestABackupOfPlainFilesOnly(t *testing.T) {
	t.Parallel()
	good, _ := backup(t, applied(t))
	data := streams.Events + ".snapshot"
	for name, tt := range map[string]struct {
		put  func(path string) error
		file string
	}{
		"a link to a device":     {func(path string) error { return os.Symlink("/dev/zero", path) }, data},
		"a link to another file": {func(path string) error { return os.Symlink(filepath.Join(good, data), path) }, data},
		"a link to nothing":      {func(path string) error { return os.Symlink("nowhere", path) }, "x"},
		"a link as the manifest": {func(path string) error { return os.Symlink(filepath.Join(good, "manifest.json"), path) }, "manifest.json"},
		"a link as the sums":     {func(path string) error { return os.Symlink(filepath.Join(good, "SHA256SUMS"), path) }, "SHA256SUMS"},
		"a pipe":                 {func(path string) error { return syscall.Mkfifo(path, 0o600) }, data},
		"a pipe beside":          {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "beside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forge(t, good)
			path := filepath.Join(f.dir, tt.file)
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err := tt.put(path); err != nil {
				t.Fatal(err)
			}
			_, err := admin.Verify(t.Context(), f.dir)
			if !errors.Is(err, admin.ErrArchive) || !strings.Contains(err.Error(), tt.file+" is a ") || !strings.Contains(err.Error(), "want a plain file") {
				t.Errorf("got %v, want an ErrArchive that names %s", err, tt.file)
			}
		})
	}
	t.Run("a folder in the place of a file", func(t *testing.T) {
		t.Parallel()
		f := forge(t, good)
		if err := errors.Join(os.Remove(filepath.Join(f.dir, data)), os.Mkdir(filepath.Join(f.dir, data), 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Verify(t.Context(), f.dir); !errors.Is(err, admin.ErrArchive) || !strings.Contains(err.Error(), data+" is a folder") {
			t.Errorf("got %v, want an ErrArchive", err)
		}
	})
}

// A listing that is too large is refused by its size, before it is parsed.
func TestALargeListingIsNotParsed(t *testing.T) {
	t.Parallel()
	good, _ := backup(t, applied(t))
	for _, name := range []string{"SHA256SUMS", "manifest.json"} {
		f := forge(t, good)
		if err := os.Truncate(filepath.Join(f.dir, name), 1<<40); err != nil { // sparse
			t.Fatal(err)
		}
		if name == "manifest.json" { // its sum would take an hour: it is left out
			f.write("SHA256SUMS", nil)
		}
		if _, err := admin.Verify(t.Context(), f.dir); !errors.Is(err, admin.ErrArchive) || !strings.Contains(err.Error(), name+" has 1099511627776 bytes, want at most") {
			t.Errorf("%s: got %v, want an ErrArchive for the size", name, err)
		}
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	good, _ := backup(t, applied(t))
	f := forge(t, good)
	if err := os.Truncate(filepath.Join(f.dir, streams.Events+".snapshot"), 1<<40); err != nil { // hours of zeros
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := testenv.NewServer(t)
	go cancel()
	if _, err := admin.Restore(ctx, b.NC, f.dir, admin.RestoreConfig{}); !errors.Is(err, context.Canceled) || errors.Is(err, admin.ErrArchive) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
