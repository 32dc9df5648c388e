// A member of a group, or a producer, that says on standard output what happens to it: one JSON object a line,
// named as those of Kafka's VerifiableConsumer.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	MinOffset int64  `json:"minOffset"`
	MaxOffset int64  `json:"maxOffset"`
}

var printing sync.Mutex

func tell(name string, partitions []partition) {
	printing.Lock()
	defer printing.Unlock()
	line, _ := json.Marshal(map[string]any{"name": name, "partitions": partitions})
	fmt.Println(string(line))
}

func told(name string, topics map[string][]int32) {
	var partitions []partition
	for topic, numbers := range topics {
		for _, number := range numbers {
			partitions = append(partitions, partition{Topic: topic, Partition: number})
		}
	}
	tell(name, partitions)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// How to reach the brokers: with KAFKA_CA and KAFKA_USER in the environment, over TLS with a login.
func connect(servers []string) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(servers...)}
	ca, user := os.Getenv("KAFKA_CA"), os.Getenv("KAFKA_USER")
	if ca == "" {
		return options
	}
	pem, err := os.ReadFile(ca)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	login := scram.Auth{User: user, Pass: os.Getenv("KAFKA_PASSWORD")}
	return append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(login.AsSha512Mechanism()))
}

func produce(servers []string, topic string, count int) {
	client, err := kgo.NewClient(append(connect(servers), kgo.DefaultProduceTopic(topic))...)
	check(err)
	for number := 0; number < count; number++ {
		key := []byte(fmt.Sprintf("key-%d", number))
		client.Produce(context.Background(), &kgo.Record{Key: key, Value: key}, func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(context.Background()))
	client.Close()
}

func balancer(name string) kgo.GroupBalancer {
	switch name {
	case "range":
		return kgo.RangeBalancer()
	case "roundrobin":
		return kgo.RoundRobinBalancer()
	case "sticky":
		return kgo.StickyBalancer()
	default:
		return kgo.CooperativeStickyBalancer()
	}
}

func consume(servers []string, topic, group, client, strategy string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	revoked := func(ctx context.Context, cl *kgo.Client, topics map[string][]int32) {
		_ = cl.CommitUncommittedOffsets(ctx)
		told("partitions_revoked", topics)
	}
	options := append(connect(servers),
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.ClientID(client),
		kgo.Balancers(balancer(strategy)), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(20*time.Second), kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			told("partitions_assigned", topics)
		}),
		kgo.OnPartitionsRevoked(revoked),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			told("partitions_revoked", topics)
		}),
	)
	member, err := kgo.NewClient(options...)
	check(err)
	for ctx.Err() == nil {
		fetches := member.PollFetches(ctx)
		var read []partition
		fetches.EachPartition(func(found kgo.FetchTopicPartition) {
			if count := len(found.Records); count > 0 {
				first, last := found.Records[0].Offset, found.Records[count-1].Offset
				read = append(read, partition{found.Topic, found.Partition, first, last})
			}
		})
		if len(read) > 0 {
			tell("records_consumed", read)
			_ = member.CommitUncommittedOffsets(context.Background())
		}
		member.AllowRebalance()
	}
	member.CloseAllowingRebalance()
}

func main() {
	servers := flag.String("servers", "", "")
	topic := flag.String("topic", "", "")
	group := flag.String("group", "", "")
	client := flag.String("client", "franz-go", "")
	strategy := flag.String("strategy", "cooperative-sticky", "")
	count := flag.Int("produce", 0, "")
	flag.Parse()
	if *count > 0 {
		produce(strings.Split(*servers, ","), *topic, *count)
		return
	}
	consume(strings.Split(*servers, ","), *topic, *group, *client, *strategy)
}
