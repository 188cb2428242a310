package main

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/follow"
)

// answer is what the other client writes.
const answer = "seen"

// answerSkills is the other client of the floor: it writes once to each Skill that it sees. Nothing else in the
// project writes Skills, so that what is left is the API server: no call can be faster than this.
func (b *bed) answerSkills(ctx context.Context, namespace string) error {
	_, err := follow.Start(ctx, b.client, &v1alpha1.SkillList{}, namespace, func(event watch.Event) {
		skill, ok := event.Object.(*v1alpha1.Skill)
		if !ok || event.Type != watch.Added {
			return
		}
		answered := skill.DeepCopy()
		answered.Spec.Description = answer
		// Without an answer the sample runs into its time limit, and says so.
		_ = b.client.Patch(ctx, answered, client.MergeFrom(skill))
	})
	return err
}
