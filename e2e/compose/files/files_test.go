package files

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
)

const top = "../../../"

var (
	single  = []string{top + "compose.yaml"}
	cluster = []string{top + "compose.yaml", top + "compose.cluster.yaml"}
)

// load is what compose makes of the files, in all profiles, with these variables.
func load(t *testing.T, names []string, env ...string) *types.Project {
	t.Helper()
	return loadProfile(t, names, "*", env...)
}

// loadProfile is load with one profile.
func loadProfile(t *testing.T, names []string, profile string, env ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions(names, cli.WithProfiles([]string{profile}), cli.WithEnv(env), cli.WithName("flightline"),
		cli.WithLoadOptions(loader.WithDiscardEnvFiles))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("%v: %v", names, err)
	}
	return project
}

// told is what compose warns of.
type told struct{ lines []string }

func (w *told) Levels() []logrus.Level { return logrus.AllLevels[:logrus.WarnLevel+1] }

func (w *told) Fire(e *logrus.Entry) error {
	w.lines = append(w.lines, e.Message)
	return nil
}

// The files are ones that compose takes, without a warning, alone and with what
// the tests of the stack add.
func TestComposeFilesAreValid(t *testing.T) {
	w := new(told)
	before := logrus.StandardLogger().ReplaceHooks(logrus.LevelHooks{})
	defer logrus.StandardLogger().ReplaceHooks(before)
	logrus.AddHook(w)
	for name, test := range map[string]struct {
		files   []string
		servers int
	}{
		"single": {single, 1}, "cluster": {cluster, 3},
		"single, tested": {append(slices.Clone(single), "../test.yaml"), 1}, "cluster, tested": {append(slices.Clone(cluster), "../test.yaml"), 3},
	} {
		servers := 0
		for _, s := range load(t, test.files).Services {
			if strings.HasPrefix(s.Image, "nats:") && slices.Contains(s.Command, "--config") {
				servers++
			}
		}
		if servers != test.servers {
			t.Errorf("%s: got %d servers of NATS, want %d", name, servers, test.servers)
		}
	}
	if len(w.lines) > 0 {
		t.Errorf("compose warns: %q", w.lines)
	}
}

// All ports are on loopback, and no container may more than it needs.
func TestComposePublishesOnLoopback(t *testing.T) {
	published := 0
	for name, s := range load(t, cluster).Services {
		for _, port := range s.Ports {
			published++
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: got the port %s on %q, want it on 127.0.0.1", name, port.Published, port.HostIP)
			}
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: got read_only %v, cap_drop %v, security_opt %v, want it hardened", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
	}
	if published < 10 {
		t.Errorf("got %d ports, want them all", published)
	}
}

// Roles reach NATS from containers of their own.
func TestComposeNATSListensBeyondLoopback(t *testing.T) {
	for _, files := range [][]string{single, cluster} {
		command := load(t, files).Services["setup"].Command
		if i := slices.Index(command, "--listen"); i < 0 || command[i+1] != "0.0.0.0:4222" {
			t.Errorf("%v: got %q, want it to --listen 0.0.0.0:4222", files, command)
		}
	}
}

// mostDrain is what a role may take to end: the most that --drain-delay may be,
// and 30 s for what it answers.
const mostDrain = 90 * time.Second

// No role is killed while it drains.
func TestComposeLetsRolesDrain(t *testing.T) {
	drain := 0
	for name, s := range load(t, cluster).Services {
		if s.Environment["FLIGHTLINE_DRAIN_DELAY"] == nil {
			continue
		}
		drain++
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < mostDrain+5*time.Second {
			t.Errorf("%s: got a grace of %v, want %v and more", name, s.StopGracePeriod, mostDrain)
		}
	}
	if drain != 14 {
		t.Errorf("got %d services that drain, want two of seven roles", drain)
	}
}

// The link in a webhook leads to the API, whatever port that has.
func TestComposeWebhooksLinkToTheAPI(t *testing.T) {
	for want, env := range map[string][]string{
		"http://127.0.0.1:8080":  nil,
		"http://127.0.0.1:9000":  {"API_PORT=9000", "FLIGHTLINE_WEBHOOK_PUBLIC_URL="},
		"https://queue.example/": {"API_PORT=9000", "FLIGHTLINE_WEBHOOK_PUBLIC_URL=https://queue.example/"},
	} {
		project := load(t, cluster, env...)
		for _, service := range []string{"webhook", "webhook-2"} {
			if got := project.Services[service].Environment["FLIGHTLINE_WEBHOOK_PUBLIC_URL"]; got == nil || *got != want {
				t.Errorf("%s with %v: got %v, want %s", service, env, got, want)
			}
		}
	}
}

// What one instance of a role may be asked by, the other may: requests go to either. Control
// makes the streams once.
func TestComposeInstancesOfARoleAreAlike(t *testing.T) {
	services, alike := load(t, cluster).Services, 0
	for name, second := range services {
		role, found := strings.CutSuffix(name, "-2")
		if !found || role == "nats" {
			continue
		}
		alike++
		first := maps.Clone(services[role].Environment)
		if role == "control" {
			first["FLIGHTLINE_CREATE_STREAMS"] = second.Environment["FLIGHTLINE_CREATE_STREAMS"]
		}
		if diff := cmp.Diff(first, second.Environment); diff != "" {
			t.Errorf("%s and %s differ: %s", role, name, diff)
		}
	}
	if alike != 7 {
		t.Errorf("got %d roles with two instances, want 7", alike)
	}
}

// A secret is seen by setup, which makes it, and by whom it is for.
func TestComposeShowsEachItsOwnSecret(t *testing.T) {
	want := map[string][]string{
		"secrets-nats": {"nats", "nats-2", "nats-3"}, "secrets-control": {"control", "control-2"}, "secrets-api": {"api", "api-2"},
		"secrets-gateway": {"gateway", "gateway-2"}, "secrets-recorder": {"recorder", "recorder-2"}, "secrets-webhook": {"webhook", "webhook-2"},
		"secrets-autoscaler": {"autoscaler", "autoscaler-2"}, "secrets-console": {"console", "console-2"}, "secrets-key": {"key", "s3-worker-setup", "worker-setup"},
		"secrets-worker": {"key"}, "secrets-reader": {"key"}, "secrets-admin": {"operate"}, "secrets-system": nil,
	}
	project, got := load(t, cluster), map[string][]string{}
	for name := range project.Volumes {
		if strings.HasPrefix(name, "secrets-") {
			got[name] = nil
		}
	}
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			if strings.HasPrefix(v.Source, "secrets-") && name != "setup" {
				got[v.Source] = append(got[v.Source], name)
				if !v.ReadOnly {
					t.Errorf("%s may write %s", name, v.Source)
				}
			}
		}
	}
	for name, services := range got {
		slices.Sort(services)
		if !slices.Equal(services, want[name]) {
			t.Errorf("%s: got %v, want %v", name, services, want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d volumes of secrets, want %d", len(got), len(want))
	}
}

// .env.example has each setting of the files and no other.
func TestComposeSettingsAreListed(t *testing.T) {
	var used, listed []string
	for _, name := range cluster {
		for _, match := range regexp.MustCompile(`\$\{([A-Z0-9_]+)`).FindAllStringSubmatch(read(t, name), -1) {
			used = append(used, match[1])
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^#? ?([A-Z0-9_]+)=`).FindAllStringSubmatch(read(t, top+".env.example"), -1) {
		listed = append(listed, match[1])
	}
	slices.Sort(used)
	slices.Sort(listed)
	if used = slices.Compact(used); !slices.Equal(used, listed) {
		t.Errorf("got %v in .env.example, want %v", listed, used)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
