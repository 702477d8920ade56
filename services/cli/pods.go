package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flightline/shared/client"
	"flightline/shared/pod"
)

func (sh *shell) podCommand() *cobra.Command {
	c := &cobra.Command{Use: "pod", Short: "Make, show, change, start, stop, restart and remove pods"}
	c.AddCommand(sh.createPod(), sh.listPods(), sh.getPod(), sh.updatePod(), sh.deletePod(),
		sh.onPod("start", "Let a pod run", client.Pods.Start),
		sh.onPod("stop", "Stop a pod; a worker has time to end its jobs", client.Pods.Stop),
		sh.onPod("restart", "End what runs of a pod, and start it again", client.Pods.Restart))
	return c
}

func (sh *shell) onPod(verb, short string, do func(client.Pods, context.Context, string) (*client.Pod, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID", Short: short,
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Pod, error) {
			return do(api.Pods(), ctx, args[0])
		}, podRows),
	}
}

// specFlags are what pods and templates are made from.
type specFlags struct {
	spec                client.Spec
	env                 []string
	image, words, mount string
	disk                int
}

func (s *specFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.spec.Name, "name", "", "name for people")
	f.StringVar(&s.image, "image", "", "`image` of the container")
	f.StringVar(&s.words, "command", "", "`words` that run instead of the image's command, with spaces between them; '' means that of the image")
	f.StringArrayVar(&s.env, "env", nil, "variable as `NAME=VALUE` (repeatable; replaces all that there are)")
	f.StringSliceVar(&s.spec.Ports, "port", nil, "`port`, like 8888/http or 22/tcp; repeat it for more")
	f.IntVar(&s.disk, "disk", 0, "size of the container's disk in `GB`; 0 means no limit")
	f.StringSliceVar(&s.spec.Capabilities, "capability", nil, "Linux `capability` that the container keeps, like CHOWN, if the machine allows it; repeat it for more")
	f.StringSliceVar(&s.spec.ModelCache, "model-cache", nil, modelCacheHelp)
	f.StringVar(&s.mount, "mount", "", "`path` at which volumes are mounted")
	mayBeEmpty(f, "image", "command", "port", "capability", "model-cache", "mount")
}

// given returns a spec with the fields whose flags were set on the command line.
func (s *specFlags) given(f *pflag.FlagSet) (client.Spec, error) {
	s.spec.Image, s.spec.VolumePath, s.spec.DiskGB = typed(f, "image", &s.image), typed(f, "mount", &s.mount), typed(f, "disk", &s.disk)
	if f.Changed("command") {
		s.spec.Command = strings.Fields(s.words)
	}
	var err error
	s.spec.Env, err = variables(s.env)
	return s.spec, err
}

// variables reads those of --env, nil for none.
func variables(given []string) (map[string]string, error) {
	if given == nil {
		return nil, nil //nolint:nilnil // none is no error
	}
	env := make(map[string]string, len(given))
	for _, entry := range given {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, &UsageError{errors.New("--env: must be NAME=VALUE")} // not quoted: it may be a secret
		}
		env[name] = value
	}
	return env, nil
}

// podFlags are what pods have besides.
type podFlags struct {
	specFlags
	pod           client.PodSpec
	gpus          int
	vcpus, memory float64
	locked        bool
}

func (s *podFlags) add(f *pflag.FlagSet) {
	s.specFlags.add(f)
	f.IntVar(&s.gpus, "gpus", 0, "how many GPUs it gets")
	f.Float64Var(&s.vcpus, "vcpus", 0, "how many virtual CPUs it gets; 0 means all")
	f.Float64Var(&s.memory, "memory", 0, "how much memory it gets in `GB`; 0 means all")
	f.BoolVar(&s.locked, "locked", false, "refuse to stop or remove it")
}

func (s *podFlags) given(f *pflag.FlagSet) (client.PodSpec, error) {
	spec, err := s.specFlags.given(f)
	s.pod.Spec = spec
	s.pod.GPUs, s.pod.VCPUs, s.pod.MemoryGB = typed(f, "gpus", &s.gpus), typed(f, "vcpus", &s.vcpus), typed(f, "memory", &s.memory)
	s.pod.Locked = typed(f, "locked", &s.locked)
	return s.pod, err
}

func (sh *shell) createPod() *cobra.Command {
	var flags podFlags
	c := &cobra.Command{
		Use: "create", Short: "Make a pod, which a driver of an autoscaler starts",
		Example: "  flightline pod create --image me/trainer:1 --gpus 1 --env MODEL=small",
	}
	flags.add(c.Flags())
	c.Flags().StringVar(&flags.pod.Driver, "driver", "", "what runs it: docker or process (default docker)")
	c.Flags().StringVar(&flags.pod.Template, "template", "", "`id` of a template to make it from")
	c.Flags().StringVar(&flags.pod.Volume, "volume", "", "`id` of a network volume to attach")
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, _ []string) (*client.Pod, error) {
		spec, err := flags.given(c.Flags())
		if err != nil {
			return nil, err
		}
		return api.Pods().Create(ctx, spec)
	}, podRows)
	return c
}

func (sh *shell) updatePod() *cobra.Command {
	var flags podFlags
	c := &cobra.Command{Use: "update ID", Short: "Change a pod, as of its next start"}
	flags.add(c.Flags())
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Pod, error) {
		spec, err := flags.given(c.Flags())
		if err != nil {
			return nil, err
		}
		return api.Pods().Update(ctx, args[0], spec)
	}, podRows)
	return c
}

func (sh *shell) listPods() *cobra.Command {
	var status, endpoint string
	var workers bool
	c := &cobra.Command{
		Use: "list", Short: "List the pods",
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			query := url.Values{}
			for name, value := range map[string]string{"desiredStatus": strings.ToUpper(status), "endpointId": endpoint} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if workers || endpoint != "" {
				query.Set("includeWorkers", "true")
			}
			list, err := api.Pods().List(ctx, query)
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "NAME", "STATUS", "PHASE", "ENDPOINT", "DRIVER", "LAST CHANGE"}}
			for _, p := range list {
				phase := podPhase(p)
				if p.Status != string(pod.Running) {
					phase = ""
				}
				rows = append(rows, []string{p.ID, clean(p.Name), p.Status, phase, p.Endpoint, p.Driver, clean(p.StatusChange)})
			}
			return sh.show(list, rows)
		}),
	}
	c.Flags().StringVar(&status, "status", "", "only those: running, exited or terminated; terminated ones are shown only so")
	c.Flags().StringVar(&endpoint, "endpoint", "", "only the workers of an endpoint")
	c.Flags().BoolVar(&workers, "workers", false, "the workers of endpoints too")
	return c
}

func (sh *shell) getPod() *cobra.Command {
	return getCommand(sh, "Show a pod; -o json has all that is known of it", func(ctx context.Context, api *client.Client, id string) (*client.Pod, error) {
		all := url.Values{"includeMachine": {"true"}, "includeNetworkVolume": {"true"}, "includeSavingsPlans": {"true"}, "includeTemplate": {"true"}}
		return api.Pods().Get(ctx, id, all)
	}, podRows)
}

func (sh *shell) deletePod() *cobra.Command {
	return sh.deleteCommand("Remove a pod for good", func(ctx context.Context, api *client.Client, id string) error {
		return api.Pods().Delete(ctx, id)
	})
}

func podRows(p *client.Pod) [][]string {
	rows := [][]string{{"ID", p.ID}, {"NAME", clean(p.Name)}, {"STATUS", p.Status}, {"LAST CHANGE", clean(p.StatusChange)}}
	rows = append(rows, present([]row{
		{"ENDPOINT", p.Endpoint, p.Endpoint != ""},
		{"DRIVER", p.Driver, p.Driver != ""},
		{"IMAGE", p.Image, p.Image != ""},
		{"MACHINE", p.MachineID, p.MachineID != ""},
		{"VCPUS", fmt.Sprint(p.VCPUs), p.VCPUs > 0},
		{"MEMORY", fmt.Sprintf("%.1f GB", p.MemoryGB), p.MemoryGB > 0},
		{"LOCKED", "yes", p.Locked},
		{"STARTED", when(p.Started), !p.Started.IsZero()},
		{"PHASE", podPhase(*p), p.Startup != nil && p.Status == string(pod.Running)},
	})...)
	rows = append(rows, startupRows("START-UP", p.Startup)...)
	if p.CostPerHr != nil {
		rows = append(rows, []string{"COST AN HOUR", fmt.Sprint(*p.CostPerHr)})
	}
	return rows
}

func (sh *shell) templateCommand() *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Make, show, change and remove templates"}
	c.AddCommand(
		sh.templateVerb("create", "Make a template"), sh.templateVerb("update ID", "Change a template"),
		getCommand(sh, "Show a template; -o json has all of it", func(ctx context.Context, api *client.Client, id string) (*client.Template, error) {
			return api.Templates().Get(ctx, id)
		}, templateRows),
		sh.listTemplates(),
		sh.deleteCommand("Remove a template that nothing uses", func(ctx context.Context, api *client.Client, id string) error {
			return api.Templates().Delete(ctx, id)
		}))
	return c
}

// templateFlags are what templates are made from.
type templateFlags struct {
	specFlags
	template         client.TemplateSpec
	category, readme string
	serverless       bool
}

// templateVerb is a command that sends what its flags say: it makes a template, or changes
// the one whose ID its use names.
func (sh *shell) templateVerb(use, short string) *cobra.Command {
	var s templateFlags
	c := &cobra.Command{Use: use, Short: short}
	f := c.Flags()
	s.add(f)
	f.StringVar(&s.category, "category", "", "NVIDIA, AMD or CPU; '' means none")
	f.StringVar(&s.readme, "readme", "", "`text` for people")
	mayBeEmpty(f, "category", "readme")
	f.BoolVar(&s.serverless, "serverless", false, "it is for endpoints")
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Template, error) {
		spec, err := s.given(f)
		if err != nil {
			return nil, err
		}
		s.template.Spec, s.template.Serverless = spec, typed(f, "serverless", &s.serverless)
		s.template.Category, s.template.Readme = typed(f, "category", &s.category), typed(f, "readme", &s.readme)
		if len(args) == 0 {
			return api.Templates().Create(ctx, s.template)
		}
		return api.Templates().Update(ctx, args[0], s.template)
	}, templateRows)
	return c
}

func (sh *shell) listTemplates() *cobra.Command {
	return listCommand(sh, "list", "List the templates", []string{"ID", "NAME", "IMAGE"},
		func(ctx context.Context, api *client.Client, _ []string) ([]client.Template, error) {
			return api.Templates().List(ctx)
		},
		func(t client.Template) []string { return []string{t.ID, clean(t.Name), clean(t.Image)} })
}

func templateRows(t *client.Template) [][]string {
	rows := [][]string{{"ID", t.ID}, {"NAME", clean(t.Name)}, {"IMAGE", clean(t.Image)}}
	if len(t.ModelCache) > 0 {
		rows = append(rows, []string{"MODEL CACHE", clean(strings.Join(t.ModelCache, " "))})
	}
	return rows
}

func (sh *shell) volumeCommand() *cobra.Command {
	c := &cobra.Command{Use: "volume", Short: "Make, show, change and remove network volumes"}
	c.AddCommand(
		sh.volumeVerb("create", "Make a network volume; --name and --size are needed"), sh.volumeVerb("update ID", "Change a network volume"),
		getCommand(sh, "Show a network volume", func(ctx context.Context, api *client.Client, id string) (*client.Volume, error) {
			return api.Volumes().Get(ctx, id)
		}, volumeRows),
		sh.listVolumes(),
		sh.deleteCommand("Remove a network volume that nothing uses, and nothing that it holds", func(ctx context.Context, api *client.Client, id string) error {
			return api.Volumes().Delete(ctx, id)
		}))
	return c
}

// volumeVerb is templateVerb for network volumes.
func (sh *shell) volumeVerb(use, short string) *cobra.Command {
	var spec client.VolumeSpec
	c := &cobra.Command{Use: use, Short: short}
	c.Flags().StringVar(&spec.Name, "name", "", "name for people")
	c.Flags().IntVar(&spec.Size, "size", 0, "size in `GB`; it never becomes less")
	setBounds(c.Flags(), "size", 1, pod.MaxDiskGB)
	c.Flags().StringVar(&spec.DataCenter, "data-center", "", "`id` of the place where it is (default local)")
	c.Flags().StringVar(&spec.Path, "path", "", "`path` where it is on the hosts")
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Volume, error) {
		if len(args) == 0 {
			return api.Volumes().Create(ctx, spec)
		}
		return api.Volumes().Update(ctx, args[0], spec)
	}, volumeRows)
	return c
}

func (sh *shell) listVolumes() *cobra.Command {
	return listCommand(sh, "list", "List the network volumes", []string{"ID", "NAME", "GB", "DATA CENTER"},
		func(ctx context.Context, api *client.Client, _ []string) ([]client.Volume, error) {
			return api.Volumes().List(ctx)
		},
		func(v client.Volume) []string {
			return []string{v.ID, clean(v.Name), fmt.Sprint(v.Size), clean(v.DataCenter)}
		})
}

func volumeRows(v *client.Volume) [][]string {
	rows := [][]string{{"ID", v.ID}, {"NAME", clean(v.Name)}, {"SIZE", fmt.Sprintf("%d GB", v.Size)}, {"DATA CENTER", clean(v.DataCenter)}}
	if v.Path != "" {
		rows = append(rows, []string{"PATH", clean(v.Path)})
	}
	return rows
}
