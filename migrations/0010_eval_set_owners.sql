ALTER TABLE "eval_sets" ADD COLUMN "owner_id" text collate "C";--> statement-breakpoint
comment on column eval_sets.owner_id is 'The user whose token made the set, the only one who sees it with a token; null for one of a key or of a service without a login, which see all.';
