package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "github.com/mattn/go-sqlite3" // the driver that goqite's README uses
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	gonsq "github.com/nsqio/go-nsq"
	"github.com/nsqio/nsq/nsqd"
	"maragu.dev/goqite"

	"github.com/postroom/postroom"
)

// The peers that run in this process.

const ourName = "postroom"

func peers() []peer {
	const network = "it serves other processes and machines"
	const server = ", for which its clients pay with a socket"
	return []peer{
		{
			name: ourName, version: "this tree", share: 10,
			settings: "Publisher with a window of 4,096 until settled, one consumer, prefetch 256, caller ids",
			start:    func(ctx context.Context, _ string) (session, error) { return startPostroom(ctx) },
		},
		{
			name: "postroom-lanes", version: "this tree", share: 10,
			settings: "the same, WithLanes",
			start: func(ctx context.Context, _ string) (session, error) {
				return startPostroom(ctx, postroom.WithLanes())
			},
		},
		{
			name: "watermill", version: version("github.com/ThreeDotsLabs/watermill"), share: 1,
			settings: "GoChannel, OutputChannelBuffer 4096, not persistent",
			beyond:   "one interface over a dozen brokers",
			lacks:    "leases, attempts, retries with a delay, limits, and a backlog without a subscriber: drains are not measured",
			start:    startWatermill,
		},
		{
			name: "nats-memory", version: version("github.com/nats-io/nats-server/v2"), share: 0.5,
			settings: "server embedded, in-process connection, work-queue stream in memory, PublishAsync with 4,096 pending, Consume with 256 pulled ahead, explicit acks",
			beyond:   network + "; streams with replay, replication",
			start:    natsWith(jetstream.MemoryStorage),
		},
		{
			name: "nats-file", version: version("github.com/nats-io/nats-server/v2"), share: 0.5,
			settings: "the same with file storage and its default of an fsync every 2 minutes",
			beyond:   network + "; messages survive the process",
			start:    natsWith(jetstream.FileStorage),
		},
		{
			name: "nsq", version: version("github.com/nsqio/nsq"), share: 0.3,
			settings: "nsqd embedded, clients over loopback TCP, mem-queue-size 1,000,000, PublishAsync, MaxInFlight 2,500, output buffers flushed every ms",
			beyond:   network + server + "; it spills to disk over its memory bound",
			start:    startNSQ,
		},
		{
			name: "goqite", version: version("maragu.dev/goqite"), share: 0.02,
			settings: "SQLite file by mattn/go-sqlite3 in WAL mode, one connection, as its README says; one goroutine",
			beyond:   "messages survive the process, and can be put in the transaction of the user's own tables",
			start:    startGoqite,
		},
		{
			name: "beanstalkd", share: 0.2, missing: notInstalled("beanstalkd"), version: debian("beanstalkd"),
			settings: "Debian's package over loopback TCP, no binlog, 16 connections that put and 16 that reserve and delete",
			beyond:   network + server,
			start:    startBeanstalkd,
		},
		{
			name: "asynq", version: version("github.com/hibiken/asynq") + ", Redis " + debian("redis-server"), share: 0.1, missing: notInstalled("redis-server"),
			settings: "Debian's Redis over loopback TCP without persistence, 16 goroutines that enqueue, Concurrency 64",
			beyond:   network + server + "; Redis can keep messages on disk",
			start:    startAsynq,
		},
		{
			name: "rabbitmq", version: debian("rabbitmq-server"), share: 0.2, missing: notInstalled(rabbitServer),
			settings: "Debian's package over loopback TCP, classic queue, transient messages, publisher confirms with 4,096 pending, prefetch 256, an ack each",
			beyond:   network + server + "; exchanges, replication, messages on disk where wanted",
			start:    startRabbit,
		},
	}
}

func names() (all []string) {
	for _, p := range peers() {
		all = append(all, p.name)
	}
	return all
}

// version is that of a module in this binary.
func version(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

// ---- Postroom ----

type postroomSession struct {
	broker    *postroom.Broker
	publisher *postroom.Publisher
	ids       string // one after the other
	puts      int
}

// idBytes is how long an id is.
const idBytes = len("order-0000000000")

// ready makes the caller's ids, in one piece like the bodies.
func (s *postroomSession) ready(n int) {
	var all strings.Builder
	all.Grow(n * idBytes)
	for i := range n {
		fmt.Fprintf(&all, "order-%010d", i)
	}
	s.ids = all.String()
}

func startPostroom(ctx context.Context, options ...postroom.Option) (session, error) {
	broker, err := postroom.Open(options...)
	if err != nil {
		return nil, err
	}
	s := &postroomSession{broker: broker}
	if err := broker.DeclareQueue(ctx, "work", postroom.QueueConfig{}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open makes the publisher with the first put: whether its window counts until the
// work is done depends on whether there is somebody to do it.
func (s *postroomSession) open(ctx context.Context, working bool) (err error) {
	if s.publisher == nil {
		s.publisher, err = s.broker.Publisher(ctx, "work", postroom.PublisherConfig{Window: ahead, UntilSettled: working})
	}
	return err
}

func (s *postroomSession) put(ctx context.Context, body []byte) error {
	if err := s.open(ctx, false); err != nil {
		return err
	}
	id := s.ids[s.puts*idBytes : (s.puts+1)*idBytes]
	s.puts++
	_, err := s.publisher.Put(ctx, postroom.Envelope{ID: id, Body: body})
	return err
}

func (s *postroomSession) flush(ctx context.Context) error { return s.publisher.Flush(ctx) }

func (s *postroomSession) work(ctx context.Context, fn func([]byte)) error {
	if err := s.open(ctx, true); err != nil {
		return err
	}
	_, err := s.broker.Consume(ctx, "work", func(_ context.Context, d *postroom.Delivery) error {
		fn(d.Body)
		return nil
	}, postroom.ConsumerConfig{Prefetch: prefetch})
	return err
}

func (s *postroomSession) close() error { return s.broker.Close(context.Background()) }

// ---- watermill GoChannel ----

type watermillSession struct {
	channel *gochannel.GoChannel
	working bool
	done    sync.WaitGroup
}

// startWatermill: the buffer is what its documents offer for speed; Persistent and
// BlockPublishUntilSubscriberAck are off, which is their default.
func startWatermill(context.Context, string) (session, error) {
	return &watermillSession{channel: gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: ahead}, watermill.NopLogger{})}, nil
}

func (s *watermillSession) put(_ context.Context, body []byte) error {
	if !s.working {
		return errNoBacklog // it would be dropped
	}
	return s.channel.Publish("work", message.NewMessage("", body)) // an id would be made with crypto/rand
}

func (s *watermillSession) flush(context.Context) error { return nil }

func (s *watermillSession) work(ctx context.Context, fn func([]byte)) error {
	messages, err := s.channel.Subscribe(context.WithoutCancel(ctx), "work")
	if err != nil {
		return err
	}
	s.working = true
	s.done.Go(func() {
		for m := range messages {
			fn(m.Payload)
			m.Ack()
		}
	})
	return nil
}

func (s *watermillSession) close() error {
	err := s.channel.Close()
	s.done.Wait()
	return err
}

// ---- NATS JetStream ----

type natsSession struct {
	server   *server.Server
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.ConsumeContext
}

// natsWith: DontListen and an in-process connection leave the network out, a work-queue
// stream deletes what is acked, asynchronous publishing is what its own benchmarks call
// fastest, and Consume pulls ahead.
func natsWith(storage jetstream.StorageType) func(context.Context, string) (session, error) {
	return func(ctx context.Context, dir string) (session, error) {
		srv, err := server.NewServer(&server.Options{ServerName: "peers", DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
		if err != nil {
			return nil, err
		}
		srv.Start()
		s := &natsSession{server: srv}
		if err := s.open(ctx, storage); err != nil {
			return nil, errors.Join(err, s.close())
		}
		return s, nil
	}
}

func (s *natsSession) open(ctx context.Context, storage jetstream.StorageType) (err error) {
	if !s.server.ReadyForConnections(10 * time.Second) {
		return errors.New("the embedded server is not ready after 10 s")
	}
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server)); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithPublishAsyncMaxPending(ahead)); err != nil {
		return err
	}
	s.stream, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "WORK", Subjects: []string{"work"}, Retention: jetstream.WorkQueuePolicy, Storage: storage,
	})
	return err
}

func (s *natsSession) put(_ context.Context, body []byte) error {
	_, err := s.js.PublishAsync("work", body, jetstream.WithStallWait(patience))
	return err
}

func (s *natsSession) flush(ctx context.Context) error {
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *natsSession) work(ctx context.Context, fn func([]byte)) error {
	consumer, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 4 * prefetch,
	})
	if err != nil {
		return err
	}
	s.consumer, err = consumer.Consume(func(m jetstream.Msg) {
		fn(m.Data())
		_ = m.Ack() // sent without waiting, as its own benchmarks do; a lost one would be redelivered and counted
	}, jetstream.PullMaxMessages(prefetch))
	return err
}

func (s *natsSession) close() error {
	if s.consumer != nil {
		s.consumer.Stop()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return nil
}

// ---- NSQ ----

type nsqSession struct {
	daemon   *nsqd.NSQD
	exited   chan error
	producer *gonsq.Producer
	consumer *gonsq.Consumer
	results  chan *gonsq.ProducerTransaction
	pending  int
	failed   error
}

// startNSQ: a memory queue above everything that is put keeps the disk out, and
// PublishAsync and MaxInFlight are its documents' way to keep the connection busy.
func startNSQ(_ context.Context, dir string) (session, error) {
	o := nsqd.NewOptions()
	o.TCPAddress, o.HTTPAddress, o.HTTPSAddress = "127.0.0.1:0", "127.0.0.1:0", ""
	o.DataPath, o.MemQueueSize, o.MaxRdyCount = dir, 1_000_000, nsqInFlight
	o.MsgTimeout = 5 * time.Minute
	o.MinOutputBufferTimeout = time.Millisecond // 25 ms, its default, is most of a short backlog's time
	o.Logger = silent{}
	daemon, err := nsqd.New(o)
	if err != nil {
		return nil, err
	}
	// The channel is there before the first message, so that none waits in the topic.
	daemon.GetTopic("work").GetChannel("workers")
	s := &nsqSession{daemon: daemon, exited: make(chan error, 1), results: make(chan *gonsq.ProducerTransaction, ahead)}
	go func() { s.exited <- daemon.Main() }()
	config := gonsq.NewConfig()
	s.producer, err = gonsq.NewProducer(daemon.RealTCPAddr().String(), config)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.producer.SetLogger(silent{}, gonsq.LogLevelError)
	return s, nil
}

// nsqInFlight is nsqd's own upper bound, which its documents advise for throughput.
const nsqInFlight = 2500

type silent struct{}

func (silent) Output(int, string) error { return nil }

func (s *nsqSession) put(_ context.Context, body []byte) error {
	for s.pending >= ahead {
		s.collect()
	}
	s.pending++
	return s.producer.PublishAsync("work", body, s.results)
}

func (s *nsqSession) collect() {
	t := <-s.results
	s.pending--
	if t.Error != nil {
		s.failed = t.Error
	}
}

func (s *nsqSession) flush(context.Context) error {
	for s.pending > 0 {
		s.collect()
	}
	return s.failed
}

func (s *nsqSession) work(_ context.Context, fn func([]byte)) (err error) {
	config := gonsq.NewConfig()
	config.MaxInFlight = nsqInFlight
	config.OutputBufferTimeout = time.Millisecond
	config.MsgTimeout = 5 * time.Minute
	if s.consumer, err = gonsq.NewConsumer("work", "workers", config); err != nil {
		return err
	}
	s.consumer.SetLogger(silent{}, gonsq.LogLevelError)
	s.consumer.AddHandler(gonsq.HandlerFunc(func(m *gonsq.Message) error { // nil finishes the message
		fn(m.Body)
		return nil
	}))
	return s.consumer.ConnectToNSQD(s.daemon.RealTCPAddr().String())
}

func (s *nsqSession) close() error {
	if s.consumer != nil {
		s.consumer.Stop()
		<-s.consumer.StopChan
	}
	if s.producer != nil {
		s.producer.Stop()
	}
	s.daemon.Exit()
	return <-s.exited
}

// ---- goqite ----

type goqiteSession struct {
	db    *sql.DB
	queue *goqite.Queue
	see   func([]byte)
}

func startGoqite(ctx context.Context, dir string) (session, error) {
	db, err := sql.Open("sqlite3", filepath.Join(dir, "goqite.db")+"?_journal=WAL&_timeout=5000&_fk=true")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &goqiteSession{db: db, queue: goqite.New(goqite.NewOpts{DB: db, Name: "work", Timeout: 10 * time.Minute})}, nil
}

// put works the message off as well when there is a worker: with the one connection
// that its README asks for, a second goroutine would only wait for the first.
func (s *goqiteSession) put(ctx context.Context, body []byte) error {
	if err := s.queue.Send(ctx, goqite.Message{Body: body}); err != nil || s.see == nil {
		return err
	}
	return s.one(ctx)
}

func (s *goqiteSession) one(ctx context.Context) error {
	m, err := s.queue.Receive(ctx)
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("the queue is empty")
	}
	s.see(m.Body)
	return s.queue.Delete(ctx, m.ID)
}

// fill puts a backlog in transactions of 1,000, which is not what is measured.
func (s *goqiteSession) fill(ctx context.Context, bodies [][]byte) error {
	for len(bodies) > 0 {
		part := bodies[:min(1000, len(bodies))]
		bodies = bodies[len(part):]
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, body := range part {
			if err := s.queue.SendTx(ctx, tx, goqite.Message{Body: body}); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (s *goqiteSession) flush(context.Context) error { return nil }

func (s *goqiteSession) work(ctx context.Context, fn func([]byte)) error {
	s.see = fn
	var left int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM goqite").Scan(&left); err != nil {
		return err
	}
	for range left {
		if err := s.one(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *goqiteSession) close() error { return s.db.Close() }
