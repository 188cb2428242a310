package api_test

import (
	"fmt"
	"strconv"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// pooled is an environment whose pool has one pod that waits.
func (s *space) pooled(size int32) *v1alpha1.ExecutionEnvironment {
	s.t.Helper()
	env := newEnvironment(s.namespace, "pooled")
	env.Spec.WarmPool = &v1alpha1.WarmPool{Size: size}
	s.create(env)
	env.Status.Warm = &v1alpha1.WarmStatus{Ready: 1, Desired: size, Selector: jobspec.PoolSelector(env)}
	if err := s.admin.Status().Update(s.t.Context(), env); err != nil {
		s.t.Fatal(err)
	}
	return env
}

func (s *space) poolSize() string {
	s.t.Helper()
	return s.run("get", "execenv", "pooled", "--output=jsonpath={.spec.warmPool.size}")
}

func TestKubectlScalesAWarmPool(t *testing.T) {
	s := newSpace(t)
	env := s.pooled(2)
	s.run("scale", "execenv/pooled", "--replicas=5")
	if got := s.poolSize(); got != "5" {
		t.Errorf("the size is %s", got)
	}
	s.run("scale", "execenv/pooled", "--current-replicas=5", "--replicas=0")
	if got := s.poolSize(); got != "0" {
		t.Errorf("the size is %s", got)
	}
	if said, err := s.Kubectl("", "scale", "-n", s.namespace, "execenv/pooled", "--replicas=201"); err == nil {
		t.Errorf("scaled above the bound: %s", said)
	}
	got := s.run("get", "execenv", "pooled", "--subresource=scale", "--output=jsonpath={.status.replicas} {.status.selector}")
	if want := "1 " + jobspec.LabelPool + "=" + string(env.UID); got != want {
		t.Errorf("the scale is %q; want %q", got, want)
	}
}

func TestScalingMakesAPool(t *testing.T) {
	s := newSpace(t)
	s.create(newEnvironment(s.namespace, "pooled"))
	s.run("scale", "execenv/pooled", "--replicas=1")
	if got := s.poolSize(); got != "1" {
		t.Errorf("the size is %s", got)
	}
}

// Without metrics an autoscaler still keeps its bounds: that it does shows that it reads and writes the size.
func TestAnAutoscalerScalesAWarmPool(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	env := s.pooled(1)
	s.create(&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pooled"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionEnvironment", Name: "pooled"},
			MinReplicas:    ptr.To(int32(3)), MaxReplicas: 6,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(50))},
			}}},
		},
	})
	eventually(t, func() error {
		if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(env), env); err != nil {
			return err
		}
		if env.Spec.WarmPool.Size != 3 {
			return fmt.Errorf("the size is %s", strconv.Itoa(int(env.Spec.WarmPool.Size)))
		}
		return nil
	})
}
