package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
)

// runConfig is what "postroom run" was told.
type runConfig struct {
	input string // a file's name, or - for stdin
	argv  []string
	path  string // where argv[0] was found

	workers, window, maxAttempts int
	lease, backoff, backoffCap   time.Duration
	timeout, killAfter           time.Duration
	maxLine                      byteSize
	skipEmpty                    bool

	dead, rest, fromDead string
	json, quiet          bool
}

const runHelp = `Run works through FILE, or stdin, with one COMMAND for each line.

  postroom run --workers 4 --max-attempts 3 --dead dead.jsonl jobs.txt -- \
      sh -c 'gzip -k "$1"' _ {}

{} inside an ARG is replaced by the line, without a shell in between: spaces,
quotes and $ in it mean nothing. Do not write sh -c 'gzip {}': there the shell
would read the line as program text, and a line "; rm -r ." would run. Pass it as
an argument, as above. A line that begins with - may be taken for an option: write
./{} or put -- before {} where the command knows it.

The line, with a newline, is also the command's stdin. In its environment are
POSTROOM_ID, the run's id and the line's number ("4f1d06c2b7aa-17"), so that equal
lines are different messages, and POSTROOM_ATTEMPT: 1, 2, …

A command's end decides:
  exit 0         acked
  exit 65        permanent (EX_DATAERR of sysexits.h): dead at once
  other exits    a failed attempt: tried again after a random wait of up to
                 --backoff, doubled each time up to --backoff-cap
  by a signal    a crash: tried again when its lease has run out, at most --lease
                 later
  --timeout      SIGTERM to its whole process group, SIGKILL --kill-after later; a
                 failed attempt whatever it then exits with
After --max-attempts the line is dead. A live command keeps its lease however long
it runs. A line may run twice, for example when the machine was suspended for
longer than a lease: make commands safe to repeat.

Lines end with \n; the last may lack it. A \r before it belongs to the line, and an
empty line is a line unless --skip-empty. A line over --max-line dies unworked,
reason too_long, with as much of it as fits; so does, at its first attempt, one
with a NUL byte where {} wants it, which no argument can hold. Reading waits while
--window lines are in work, those that wait for their next attempt included, and
goes on when half of them are done.

What commands print on stdout and stderr is passed through, whole lines at a time,
so that two commands do not share a line; their order between commands is that in
which they were printed. Output is read until everybody who has it has closed it,
at most --kill-after longer than the command lives.

--dead takes each dead line as JSON: id, body (body_base64 where it is not UTF-8),
reason, attempts, error and the end of its stderr. --from-dead works through such a
file again; ids are kept. Both it and the rest file are made with mode 0600 and
never overwritten.

Ctrl-C, SIGTERM or SIGHUP once: running commands end, then unfinished lines go to
--rest as they were read, and the next unread line is named; so
  tail -n +N jobs.txt >> rest.txt
makes rest.txt all that is left. Twice: running commands are killed first. The same
happens when the dead file cannot be written or stdout is closed.

Exit status: 0 all acked, 1 something died, 2 usage, 3 interrupted.`

func (a *app) runCommand() *cobra.Command {
	c := &runConfig{maxLine: 1 << 20}
	cmd := &cobra.Command{
		Use:   "run [flags] [FILE|-] -- COMMAND [ARG...]",
		Short: "Work through a file or stdin, one line per message, with a command per message",
		Long:  runHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.parse(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			status, err := a.work(cmd.Context(), c)
			a.status = status
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.workers, "workers", runtime.NumCPU(), "commands that run at once")
	f.IntVar(&c.window, "window", postroom.DefaultWindow, "lines in work at most, at least --workers")
	f.IntVar(&c.maxAttempts, "max-attempts", 3, "attempts a line gets before it is dead")
	f.DurationVar(&c.lease, "lease", 30*time.Second, "how long a crashed command's line waits for its next attempt; at least 10ms")
	f.DurationVar(&c.backoff, "backoff", time.Second, "longest wait after the first failure, doubled after each; 0 waits for nothing")
	f.DurationVar(&c.backoffCap, "backoff-cap", 5*time.Minute, "longest wait after any failure")
	f.DurationVar(&c.timeout, "timeout", 0, "ends a command that runs longer; 0 never does")
	f.DurationVar(&c.killAfter, "kill-after", 5*time.Second, "from SIGTERM to SIGKILL")
	f.Var(&c.maxLine, "max-line", "longest line, in bytes or with KiB, MiB, GiB")
	f.BoolVar(&c.skipEmpty, "skip-empty", false, "ignore empty lines")
	f.StringVar(&c.dead, "dead", "", "`file` for dead lines, as JSON lines")
	f.StringVar(&c.fromDead, "from-dead", "", "work through the dead lines in `file`, or - for stdin")
	f.StringVar(&c.rest, "rest", "", "`file` for unfinished lines when interrupted")
	f.BoolVar(&c.json, "json", false, "print the figures as one last line of JSON on stdout")
	f.BoolVar(&c.quiet, "quiet", false, "no progress and no summary on stderr")
	return cmd
}

// parse checks the command line as far as that goes without opening anything but
// the way to the command. dash is how many args stand before "--"; -1: there is none.
func (c *runConfig) parse(args []string, dash int) error {
	bad := func(problem, hint string) error { return &usageError{problem: problem, hint: hint} }
	if dash < 0 {
		return bad("no command: -- is missing before it", "postroom run jobs.txt -- COMMAND {}")
	}
	files, argv := args[:dash], args[dash:]
	switch {
	case len(argv) == 0 || argv[0] == "":
		return bad("no command after --", "postroom run jobs.txt -- COMMAND {}")
	case len(files) > 1:
		return bad(fmt.Sprintf("%d input files, want one", len(files)), "cat them: cat a b | postroom run - -- COMMAND {}")
	case len(files) == 1 && files[0] == "":
		return bad("the input file's name is empty", "name a file, or - for stdin")
	case len(files) == 1 && c.fromDead != "":
		return bad("both "+files[0]+" and --from-dead are given", "--from-dead names the input: leave the other out")
	case strings.Contains(argv[0], placeholder):
		return bad("{} stands in the command's own name", "use it in an argument: the line must not choose the program")
	case c.workers < 1 || c.workers > workersMax:
		return bad(fmt.Sprintf("--workers %d, want 1 to %d", c.workers, workersMax), "")
	case c.window < c.workers:
		return bad(fmt.Sprintf("--window %d is less than --workers %d", c.window, c.workers), "each worker has one line of the window")
	case c.maxAttempts < 1:
		return bad(fmt.Sprintf("--max-attempts %d, want at least 1", c.maxAttempts), "")
	case c.lease < leaseMin:
		return bad(fmt.Sprintf("--lease %s, want at least %s", c.lease, leaseMin), "")
	case c.maxLine < 1 || c.maxLine > maxLineMax:
		return bad(fmt.Sprintf("--max-line %s, want 1 to 1GiB", &c.maxLine), "")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"backoff", c.backoff}, {"backoff-cap", c.backoffCap}, {"timeout", c.timeout}, {"kill-after", c.killAfter}} {
		if d.value < 0 {
			return bad(fmt.Sprintf("--%s %s, want 0 or more", d.flag, d.value), "")
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		var e *exec.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return &usageError{problem: "command " + strconv.Quote(argv[0]), hint: "check its name, its mode and $PATH", cause: err}
	}
	c.argv, c.path = argv, path
	c.input = "-"
	if c.fromDead != "" {
		c.input = c.fromDead
	} else if len(files) == 1 {
		c.input = files[0]
	}
	return nil
}

// Bounds of the flags, all far outside of what serves anybody.
const (
	workersMax = 10_000
	leaseMin   = 10 * time.Millisecond // a heartbeat comes every third of it
	maxLineMax = 1 << 30
)

// shells are the programs for which an argument after -c is program text.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"}

// shellReadsLine reports whether {} stands in a shell's program text.
func (c *runConfig) shellReadsLine() bool {
	if !slices.Contains(shells, filepath.Base(c.argv[0])) {
		return false
	}
	for i, arg := range c.argv[1:] {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, "c") && i+2 < len(c.argv) {
			return strings.Contains(c.argv[i+2], placeholder)
		}
	}
	return false
}

// byteSize is a flag for a number of bytes.
type byteSize int64

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"G", 30}, {"M", 20}, {"K", 10}}

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	number, shift := s, uint(0)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			number, shift = rest, u.shift
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n<<shift>>shift != n {
		return errors.New("want a number of bytes, such as 65536, 64KiB or 1MiB")
	}
	*b = byteSize(n << shift)
	return nil
}

// String implements pflag.Value.
func (b *byteSize) String() string {
	for _, u := range byteUnits[:3] {
		if n := int64(*b); n != 0 && n&(1<<u.shift-1) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type implements pflag.Value.
func (*byteSize) Type() string { return "size" }

// files are what a run reads and writes. They are opened before any work, so that a
// name that will not do is found then.
type files struct {
	input io.Reader
	size  int64 // of the input; 0 when that is not known
	dead  *deadFile
	rest  *restFile
	close []func()
}

// Close closes what was opened.
func (f *files) Close() {
	for _, fn := range f.close {
		fn()
	}
}

// open opens the files of a run. Errors: [*usageError].
func (a *app) open(c *runConfig) (*files, error) {
	f := &files{}
	names := map[string]os.FileInfo{}
	if err := f.open(a, c, names); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *files) open(a *app, c *runConfig, infos map[string]os.FileInfo) error {
	in, err := a.openInput(c)
	if err != nil {
		return err
	}
	f.input = in
	if file, ok := in.(*os.File); ok {
		if c.input != "-" {
			f.close = append(f.close, func() { file.Close() })
		}
		info, err := file.Stat()
		if err != nil {
			return &usageError{problem: "input", cause: err}
		}
		if info.IsDir() {
			return &usageError{problem: "input " + c.input + " is a directory", hint: "name a file, or - for stdin"}
		}
		if info.Mode().IsRegular() {
			f.size = info.Size()
			infos["the input"] = info
		}
	}
	if c.rest != "" {
		file, made, err := f.create("--rest", c.rest, infos)
		if err != nil {
			return err
		}
		f.rest = &restFile{file: file, name: c.rest, made: made}
		f.close = append(f.close, f.rest.Close)
	}
	if c.dead != "" {
		file, _, err := f.create("--dead", c.dead, infos)
		if err != nil {
			return err
		}
		f.dead = newDeadFile(file, c.dead)
		f.close = append(f.close, f.dead.Close)
	}
	return nil
}

func (a *app) openInput(c *runConfig) (io.Reader, error) {
	if c.input == "-" {
		return a.stdin, nil
	}
	file, err := os.Open(c.input)
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, &usageError{problem: "input " + c.input, cause: err, hint: "name a file that can be read, or - for stdin"}
	}
	return file, nil
}

// create opens a file to write. One that holds something is refused: it may be all
// that is left of an earlier run's work. So is one that has another role as well.
func (f *files) create(role, name string, infos map[string]os.FileInfo) (file *os.File, made bool, err error) {
	bad := func(cause error) error {
		var e *os.PathError
		if errors.As(cause, &e) {
			cause = e.Err
		}
		return &usageError{problem: role + " " + name, cause: cause, hint: "name a file that can be made"}
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		// Exclusively: nobody else's file or link gets in between.
		if file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode); err != nil {
			return nil, false, bad(err)
		}
		made = true
	case err != nil:
		return nil, false, bad(err)
	default:
		for other, i := range infos {
			if os.SameFile(i, info) {
				return nil, false, &usageError{problem: fmt.Sprintf("%s %s is %s", role, name, other), hint: "give each its own file"}
			}
		}
		if info.Mode().IsRegular() && info.Size() > 0 {
			return nil, false, &usageError{problem: fmt.Sprintf("%s %s is not empty, and nothing is overwritten", role, name), hint: "move it away or name another file"}
		}
		if file, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, false, bad(err)
		}
		if info.Mode().IsRegular() {
			if err := file.Chmod(fileMode); err != nil {
				file.Close()
				return nil, false, bad(err)
			}
		}
	}
	if info, err = file.Stat(); err != nil {
		file.Close()
		return nil, false, bad(err)
	}
	if info.Mode().IsRegular() {
		infos[role] = info
	}
	return file, made, nil
}

// fileMode is for files that hold lines: whoever may read the input need not be
// everybody.
const fileMode = 0o600
