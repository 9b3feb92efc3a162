package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/beanstalkd/go-beanstalk"
	"github.com/hibiken/asynq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// The peers that are programs of their own: Debian's packages, each started here on a
// free port of the loopback interface and ended afterwards.

// connections is how many a peer gets whose protocol answers one request at a time.
const connections = 16

func notInstalled(program string) func() string {
	return func() string {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
		return ""
	}
}

// debian is the version of an installed package.
func debian(name string) string {
	out, err := exec.Command("dpkg-query", "-W", "-f=${Version}", name).Output()
	if err != nil {
		return "not installed"
	}
	return "Debian's " + string(out)
}

// daemon is a program that serves a port.
type daemon struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed
	output bytes.Buffer
	addr   string
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// startDaemon runs a program and waits until it answers on its port.
func startDaemon(ctx context.Context, port int, env []string, patience time.Duration, program string, args ...string) (*daemon, error) {
	d := &daemon{cmd: exec.Command(program, args...), ended: make(chan struct{}), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = &d.output, &d.output
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = d.cmd.Wait() // how a program ends that was told to is its own affair
		close(d.ended)
	}()
	for deadline := time.Now().Add(patience); ; {
		c, err := net.DialTimeout("tcp", d.addr, time.Second)
		if err == nil {
			return d, c.Close()
		}
		select {
		case <-d.ended:
			return nil, fmt.Errorf("%s has ended: %s", program, lastLine(d.output.String()))
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), d.stop())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("%s does not answer on %s after %s", program, d.addr, patience), d.stop())
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// stop ends the program, gently at first.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
	return nil
}

// ---- beanstalkd ----

type beanstalkSession struct {
	*daemon
	puts    chan []byte
	putters sync.WaitGroup
	pending sync.WaitGroup
	mu      sync.Mutex
	failed  error
	stop    chan struct{}
	workers sync.WaitGroup
	conns   []*beanstalk.Conn
}

// startBeanstalkd: without -b nothing is written to disk, and its protocol answers one
// command at a time on a connection, so several connections keep it busy.
func startBeanstalkd(ctx context.Context, _ string) (session, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	d, err := startDaemon(ctx, port, nil, 10*time.Second, "beanstalkd", "-l", "127.0.0.1", "-p", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	s := &beanstalkSession{daemon: d, puts: make(chan []byte, ahead), stop: make(chan struct{})}
	for range connections {
		c, err := s.dial()
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		tube := beanstalk.NewTube(c, "work")
		s.putters.Go(func() {
			for body := range s.puts {
				if _, err := tube.Put(body, 1, 0, 5*time.Minute); err != nil {
					s.fail(err)
				}
				s.pending.Done()
			}
		})
	}
	return s, nil
}

func (s *beanstalkSession) dial() (*beanstalk.Conn, error) {
	c, err := beanstalk.Dial("tcp", s.addr)
	if err == nil {
		s.conns = append(s.conns, c)
	}
	return c, err
}

func (s *beanstalkSession) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (s *beanstalkSession) put(ctx context.Context, body []byte) error {
	s.pending.Add(1)
	select {
	case s.puts <- body:
		return nil
	case <-ctx.Done():
		s.pending.Done()
		return context.Cause(ctx)
	}
}

func (s *beanstalkSession) flush(context.Context) error {
	s.pending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *beanstalkSession) work(_ context.Context, fn func([]byte)) error {
	for range connections {
		c, err := s.dial()
		if err != nil {
			return err
		}
		tubes := beanstalk.NewTubeSet(c, "work")
		s.workers.Go(func() {
			for {
				select {
				case <-s.stop:
					return
				default:
				}
				id, body, err := tubes.Reserve(100 * time.Millisecond)
				if errors.Is(err, beanstalk.ErrTimeout) {
					continue
				}
				if err != nil {
					return
				}
				fn(body)
				if err := c.Delete(id); err != nil {
					s.fail(err)
				}
			}
		})
	}
	return nil
}

func (s *beanstalkSession) close() error {
	close(s.puts)
	s.putters.Wait()
	close(s.stop)
	s.workers.Wait()
	for _, c := range s.conns {
		_ = c.Close()
	}
	return s.daemon.stop()
}

// ---- Redis and asynq ----

type asynqSession struct {
	*daemon
	client  *asynq.Client
	server  *asynq.Server
	puts    chan []byte
	putters sync.WaitGroup
	pending sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

// startAsynq: Redis writes nothing to disk, and both sides of asynq run many at once,
// because each enqueue waits for its answer and each task is a goroutine.
func startAsynq(ctx context.Context, dir string) (session, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	d, err := startDaemon(ctx, port, nil, 10*time.Second, "redis-server",
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", dir)
	if err != nil {
		return nil, err
	}
	s := &asynqSession{daemon: d, puts: make(chan []byte, ahead)}
	s.client = asynq.NewClient(asynq.RedisClientOpt{Addr: d.addr, PoolSize: connections})
	for range connections {
		s.putters.Go(func() {
			for body := range s.puts {
				if _, err := s.client.Enqueue(asynq.NewTask("work", body), asynq.Timeout(5*time.Minute)); err != nil {
					s.mu.Lock()
					s.failed = err
					s.mu.Unlock()
				}
				s.pending.Done()
			}
		})
	}
	return s, nil
}

func (s *asynqSession) put(ctx context.Context, body []byte) error {
	s.pending.Add(1)
	select {
	case s.puts <- body:
		return nil
	case <-ctx.Done():
		s.pending.Done()
		return context.Cause(ctx)
	}
}

func (s *asynqSession) flush(context.Context) error {
	s.pending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *asynqSession) work(_ context.Context, fn func([]byte)) error {
	const concurrency = 64
	s.server = asynq.NewServer(asynq.RedisClientOpt{Addr: s.addr, PoolSize: concurrency}, asynq.Config{
		Concurrency: concurrency, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond, ShutdownTimeout: time.Second,
	})
	return s.server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		fn(t.Payload())
		return nil
	}))
}

func (s *asynqSession) close() error {
	close(s.puts)
	s.putters.Wait()
	if s.server != nil {
		s.server.Shutdown()
	}
	err := s.client.Close()
	return errors.Join(err, s.daemon.stop())
}

// ---- RabbitMQ ----

// rabbitServer is the program itself; the one in the path changes the user.
const rabbitServer = "/usr/lib/rabbitmq/bin/rabbitmq-server"

type rabbitSession struct {
	*daemon
	epmdPort string
	conn     *amqp.Connection
	channel  *amqp.Channel
	pending  chan *amqp.DeferredConfirmation
	workers  sync.WaitGroup
}

// startRabbit: a classic queue and transient messages are its fastest, confirms are
// kept because each of the others says that it has a message too, and they are waited
// for 4,096 behind. It keeps everything in a directory of its own.
func startRabbit(ctx context.Context, dir string) (session, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	epmd, err := freePort()
	if err != nil {
		return nil, err
	}
	plugins := filepath.Join(dir, "plugins")
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o600); err != nil {
		return nil, err
	}
	s := &rabbitSession{epmdPort: strconv.Itoa(epmd), pending: make(chan *amqp.DeferredConfirmation, ahead)}
	s.daemon, err = startDaemon(ctx, port, []string{
		"HOME=" + dir, "RABBITMQ_NODENAME=peers@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(port), "RABBITMQ_DIST_PORT=" + strconv.Itoa(port+1), "ERL_EPMD_PORT=" + s.epmdPort, "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_MNESIA_BASE=" + dir, "RABBITMQ_LOG_BASE=" + dir, "RABBITMQ_ENABLED_PLUGINS_FILE=" + plugins,
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "none"), "RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
	}, time.Minute, rabbitServer)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *rabbitSession) open(ctx context.Context) (err error) {
	if s.conn, err = amqp.Dial("amqp://guest:guest@" + s.addr); err != nil {
		return err
	}
	if s.channel, err = s.conn.Channel(); err != nil {
		return err
	}
	if err := s.channel.Confirm(false); err != nil {
		return err
	}
	_, err = s.channel.QueueDeclare("work", false, false, false, false, nil)
	return err
}

func (s *rabbitSession) put(ctx context.Context, body []byte) error {
	for len(s.pending) == cap(s.pending) {
		if err := s.confirm(ctx); err != nil {
			return err
		}
	}
	c, err := s.channel.PublishWithDeferredConfirmWithContext(ctx, "", "work", false, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Transient})
	if err == nil {
		s.pending <- c
	}
	return err
}

func (s *rabbitSession) confirm(ctx context.Context) error {
	ok, err := (<-s.pending).WaitContext(ctx)
	if err == nil && !ok {
		err = errors.New("a message was refused")
	}
	return err
}

func (s *rabbitSession) flush(ctx context.Context) error {
	for len(s.pending) > 0 {
		if err := s.confirm(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *rabbitSession) work(_ context.Context, fn func([]byte)) error {
	channel, err := s.conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	s.workers.Go(func() {
		for d := range deliveries {
			fn(d.Body)
			_ = d.Ack(false) // the connection is gone then, and the count too low
		}
	})
	return nil
}

func (s *rabbitSession) close() error {
	if s.conn != nil {
		_ = s.conn.Close()
		s.workers.Wait()
	}
	err := s.daemon.stop()
	kill := exec.Command("epmd", "-port", s.epmdPort, "-kill") // the name server that it has started
	kill.Env = append(os.Environ(), "ERL_EPMD_ADDRESS=127.0.0.1")
	_ = kill.Run()
	return err
}
