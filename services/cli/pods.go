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
	c.AddCommand(sh.createPod(), sh.listPods(), sh.getPod(), sh.updatePod(),
		deleteCommand(sh, "Remove a pod for good", (*client.Client).Pods, client.Pods.Delete),
		onID(sh, "start", "Let a pod run", (*client.Client).Pods, client.Pods.Start, podRows),
		onID(sh, "stop", "Stop a pod; a worker has time to end its jobs", (*client.Client).Pods, client.Pods.Stop, podRows),
		onID(sh, "restart", "End what runs of a pod, and start it again", (*client.Client).Pods, client.Pods.Restart, podRows))
	return c
}

// addSpecFlags adds the flags of what pods and templates are made from. The function that
// it returns reads those with a form of their own, once they were typed.
func addSpecFlags(f *pflag.FlagSet, spec *client.Spec) (read func() error) {
	var env []string
	var words string
	f.StringVar(&spec.Name, "name", "", "name for people")
	optional(f, f.StringVar, &spec.Image, "image", "`image` of the container")
	f.StringVar(&words, "command", "", "`words` that run instead of the image's command, with spaces between them; '' means that of the image")
	f.StringArrayVar(&env, "env", nil, "variable as `NAME=VALUE` (repeatable; replaces all that there are)")
	f.StringSliceVar(&spec.Ports, "port", nil, "`port`, like 8888/http or 22/tcp; repeat it for more")
	optional(f, f.IntVar, &spec.DiskGB, "disk", "size of the container's disk in `GB`; 0 means no limit")
	f.StringSliceVar(&spec.Capabilities, "capability", nil, "Linux `capability` that the container keeps, like CHOWN, if the machine allows it; repeat it for more")
	f.StringSliceVar(&spec.ModelCache, "model-cache", nil, modelCacheHelp)
	optional(f, f.StringVar, &spec.VolumePath, "mount", "`path` at which volumes are mounted")
	mayBeEmpty(f, "image", "command", "port", "capability", "model-cache", "mount")
	return func() (err error) {
		if f.Changed("command") {
			spec.Command = strings.Fields(words)
		}
		spec.Env, err = variables(env)
		return err
	}
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

// addPodFlags is addSpecFlags for pods.
func addPodFlags(f *pflag.FlagSet, spec *client.PodSpec) (read func() error) {
	optional(f, f.IntVar, &spec.GPUs, "gpus", "how many GPUs it gets")
	optional(f, f.Float64Var, &spec.VCPUs, "vcpus", "how many virtual CPUs it gets; 0 means all")
	optional(f, f.Float64Var, &spec.MemoryGB, "memory", "how much memory it gets in `GB`; 0 means all")
	optional(f, f.BoolVar, &spec.Locked, "locked", "refuse to stop or remove it")
	return addSpecFlags(f, &spec.Spec)
}

func (sh *shell) createPod() *cobra.Command {
	var spec client.PodSpec
	c := &cobra.Command{
		Use: "create", Short: "Make a pod, which a driver of an autoscaler starts",
		Example: "  flightline pod create --image me/trainer:1 --gpus 1 --env MODEL=small",
	}
	read := addPodFlags(c.Flags(), &spec)
	c.Flags().StringVar(&spec.Driver, "driver", "", "what runs it: docker or process (default docker)")
	c.Flags().StringVar(&spec.Template, "template", "", "`id` of a template to make it from")
	c.Flags().StringVar(&spec.Volume, "volume", "", "`id` of a network volume to attach")
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, _ []string) (*client.Pod, error) {
		if err := read(); err != nil {
			return nil, err
		}
		return api.Pods().Create(ctx, spec)
	}, podRows)
	return c
}

func (sh *shell) updatePod() *cobra.Command {
	var spec client.PodSpec
	c := &cobra.Command{Use: "update ID", Short: "Change a pod, as of its next start"}
	read := addPodFlags(c.Flags(), &spec)
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Pod, error) {
		if err := read(); err != nil {
			return nil, err
		}
		return api.Pods().Update(ctx, args[0], spec)
	}, podRows)
	return c
}

func (sh *shell) listPods() *cobra.Command {
	var status, endpoint string
	var workers bool
	c := listCommand(sh, "list", "List the pods", []string{"ID", "NAME", "STATUS", "PHASE", "ENDPOINT", "DRIVER", "LAST CHANGE"},
		func(ctx context.Context, api *client.Client, _ []string) ([]client.Pod, error) {
			query := url.Values{}
			for name, value := range map[string]string{"desiredStatus": strings.ToUpper(status), "endpointId": endpoint} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if workers || endpoint != "" {
				query.Set("includeWorkers", "true")
			}
			return api.Pods().List(ctx, query)
		},
		func(p client.Pod) []string {
			phase := podPhase(p)
			if p.Status != string(pod.Running) {
				phase = ""
			}
			return []string{p.ID, clean(p.Name), p.Status, phase, p.Endpoint, p.Driver, clean(p.StatusChange)}
		})
	c.Flags().StringVar(&status, "status", "", "only those: running, exited or terminated; terminated ones are shown only so")
	c.Flags().StringVar(&endpoint, "endpoint", "", "only the workers of an endpoint")
	c.Flags().BoolVar(&workers, "workers", false, "the workers of endpoints too")
	return c
}

func (sh *shell) getPod() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a pod; -o json has all that is known of it",
		RunE: runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Pod, error) {
			all := url.Values{"includeMachine": {"true"}, "includeNetworkVolume": {"true"}, "includeSavingsPlans": {"true"}, "includeTemplate": {"true"}}
			return api.Pods().Get(ctx, args[0], all)
		}, podRows),
	}
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
		onID(sh, "get", "Show a template; -o json has all of it", (*client.Client).Templates, client.Templates.Get, templateRows),
		listAllCommand(sh, "List the templates", []string{"ID", "NAME", "IMAGE"}, (*client.Client).Templates, client.Templates.List,
			func(t client.Template) []string { return []string{t.ID, clean(t.Name), clean(t.Image)} }),
		deleteCommand(sh, "Remove a template that nothing uses", (*client.Client).Templates, client.Templates.Delete))
	return c
}

// templateVerb is a command that sends what its flags say: it makes a template, or changes
// the one whose ID its use names.
func (sh *shell) templateVerb(use, short string) *cobra.Command {
	var spec client.TemplateSpec
	c := &cobra.Command{Use: use, Short: short}
	f := c.Flags()
	read := addSpecFlags(f, &spec.Spec)
	optional(f, f.StringVar, &spec.Category, "category", "NVIDIA, AMD or CPU; '' means none")
	optional(f, f.StringVar, &spec.Readme, "readme", "`text` for people")
	mayBeEmpty(f, "category", "readme")
	optional(f, f.BoolVar, &spec.Serverless, "serverless", "it is for endpoints")
	c.RunE = runAndShow(sh, func(ctx context.Context, api *client.Client, args []string) (*client.Template, error) {
		if err := read(); err != nil {
			return nil, err
		}
		if len(args) == 0 {
			return api.Templates().Create(ctx, spec)
		}
		return api.Templates().Update(ctx, args[0], spec)
	}, templateRows)
	return c
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
		onID(sh, "get", "Show a network volume", (*client.Client).Volumes, client.Volumes.Get, volumeRows),
		listAllCommand(sh, "List the network volumes", []string{"ID", "NAME", "GB", "DATA CENTER"}, (*client.Client).Volumes, client.Volumes.List,
			func(v client.Volume) []string {
				return []string{v.ID, clean(v.Name), fmt.Sprint(v.Size), clean(v.DataCenter)}
			}),
		deleteCommand(sh, "Remove a network volume that nothing uses, and nothing that it holds", (*client.Client).Volumes, client.Volumes.Delete))
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

func volumeRows(v *client.Volume) [][]string {
	rows := [][]string{{"ID", v.ID}, {"NAME", clean(v.Name)}, {"SIZE", fmt.Sprintf("%d GB", v.Size)}, {"DATA CENTER", clean(v.DataCenter)}}
	if v.Path != "" {
		rows = append(rows, []string{"PATH", clean(v.Path)})
	}
	return rows
}
