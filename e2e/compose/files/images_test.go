package files

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// Each image is built by one service, however many run it, and whichever service
// is started brings the one that builds its image along.
func TestComposeBuildsEachImageOnce(t *testing.T) {
	project := load(t, cluster)
	builders := map[string][]string{}
	for name, s := range project.Services {
		if s.Build != nil {
			builders[s.Image] = append(builders[s.Image], name)
		}
	}
	if len(builders) != 2 {
		t.Errorf("got the images %v, want ours and the worker's", slices.Collect(maps.Keys(builders)))
	}
	for image, services := range builders {
		if len(services) != 1 {
			t.Errorf("%s is built by %v, want one service", image, services)
		}
		for name, s := range project.Services {
			if s.Image == image && !reaches(project, name, services[0]) {
				t.Errorf("%s runs %s, and can start without %s, which builds it", name, image, services[0])
			}
		}
	}
}

// reaches reports whether the service is the other one or needs it, directly or not.
func reaches(project *types.Project, service, other string) bool {
	if service == other {
		return true
	}
	for name := range project.Services[service].DependsOn {
		if reaches(project, name, other) {
			return true
		}
	}
	return false
}

// What a build downloads or compiles is there at the next one.
func TestDockerfilesKeepTheirCaches(t *testing.T) {
	for name, want := range map[string]int{"services/Dockerfile": 2, "e2e/workers/Dockerfile": 1} {
		text := strings.ReplaceAll(read(t, top+name), "\\\n", " ")
		lines := regexp.MustCompile(`(?m)^RUN .*(go mod download|go build|pip install).*$`).FindAllString(text, -1)
		if len(lines) != want {
			t.Errorf("%s: got the lines %q, want %d", name, lines, want)
		}
		for _, line := range lines {
			if !strings.Contains(line, "--mount=type=cache,") {
				t.Errorf("%s: got %q, want it with a cache", name, line)
			}
		}
	}
}

// The addresses that a worker returns are those at which the host, or a proxy,
// has the bucket: they are signed for that name.
func TestComposeAddressesOfUploadsWorkOutside(t *testing.T) {
	for want, env := range map[string][]string{
		"http://127.0.0.1:7070":     nil,
		"http://127.0.0.1:9000":     {"S3_PORT=9000", "S3_PUBLIC_URL="},
		"https://files.example.com": {"S3_PORT=9000", "S3_PUBLIC_URL=https://files.example.com"},
	} {
		project := load(t, single, env...)
		if got := project.Services["s3-worker-setup"].Environment["BUCKET_PUBLIC_URL"]; got == nil || *got != want {
			t.Errorf("with %v: got %v, want %s", env, got, want)
		}
	}
}

// Prometheus runs where the image of Grafana cannot be had.
func TestComposeHasMetricsWithoutGrafana(t *testing.T) {
	for profile, want := range map[string][2]bool{"metrics": {true, false}, "observe": {true, true}, "s3": {false, false}} {
		services := loadProfile(t, single, profile).Services
		_, prometheus := services["prometheus"]
		_, grafana := services["grafana"]
		if got := [2]bool{prometheus, grafana}; got != want {
			t.Errorf("%s: got Prometheus and Grafana %v, want %v", profile, got, want)
		}
	}
}
